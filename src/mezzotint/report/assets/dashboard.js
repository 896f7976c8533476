// Dash's sliders and choices have no names of their own, and say that choices are a list: say what they are.
const name = () => document.querySelectorAll('.control').forEach(control => {
  const words = control.querySelector('label').textContent;
  control.querySelectorAll('.dash-slider-container input, [role=slider]').forEach(part =>
    part.setAttribute('aria-label', words));
  const choices = control.querySelector('.dash-radioitems');
  if (!choices) return;
  choices.setAttribute('role', 'radiogroup');
  choices.setAttribute('aria-label', words);
  choices.querySelectorAll('label').forEach(label => {
    label.removeAttribute('role');
    label.removeAttribute('aria-selected');
  });
});
new MutationObserver(name).observe(document.body, {childList: true, subtree: true});
