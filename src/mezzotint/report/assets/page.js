// The slider of a distribution, and the file that a page carries.
for (const [key, data] of Object.entries(JSON.parse(document.getElementById('sliders').textContent))) {
  const box = document.getElementById(key);
  const bars = box.querySelectorAll('.bars rect');
  const line = box.querySelector('.input');
  const handle = document.getElementById(`${key}-input`);
  const says = document.getElementById(`${key}-says`);
  const ends = line.getAttribute('d').replace(/^M\S+/, '');
  const show = () => {
    const index = Number(handle.value);
    data.frames[index].forEach((millionths, bar) => {
      const height = millionths * data.unit;
      bars[bar].setAttribute('height', height);
      bars[bar].setAttribute('y', data.bottom - height);
    });
    line.setAttribute('d', `M${data.places[index]}${ends}`);
    says.textContent = `input ${data.inputs[index].toPrecision(4)}: mean of the decoded report ` +
      `${data.means[index].toPrecision(4)}, standard deviation ${data.deviations[index].toPrecision(4)}`;
    handle.setAttribute('aria-valuetext', data.inputs[index].toPrecision(4));
  };
  handle.addEventListener('input', show);
  show();
}
const attached = document.getElementById('attachment');
if (attached) {
  const link = document.getElementById('save');
  link.href = URL.createObjectURL(new Blob([JSON.parse(attached.textContent)], {type: 'application/json'}));
}
document.body.dataset.ready = 'yes';
