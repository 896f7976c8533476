const figures = JSON.parse(document.getElementById('figures').textContent);
const quiet = {responsive: true, displayModeBar: false};
const drawn = [];
const dark = window.matchMedia('(prefers-color-scheme: dark)');
const colours = () => {
  const grid = dark.matches ? '#3d4148' : '#e4e4e4';
  const zero = dark.matches ? '#5c616b' : '#cccccc';
  return {paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
    'font.color': dark.matches ? '#e4e4e4' : '#222222', 'xaxis.gridcolor': grid, 'yaxis.gridcolor': grid,
    'xaxis.zerolinecolor': zero, 'yaxis.zerolinecolor': zero};
};
dark.addEventListener('change', () => {
  for (const key of Object.keys(figures)) Plotly.relayout(document.getElementById(key), colours());
});
for (const [key, one] of Object.entries(figures)) {
  const place = document.getElementById(key);
  drawn.push(Plotly.newPlot(place, one.data, one.layout, quiet).then(() => Plotly.relayout(place, colours())));
  if (!one.frames) continue;
  const handle = document.getElementById(key + '-input');
  const says = document.getElementById(key + '-says');
  const show = () => {
    const i = Number(handle.value);
    const x = one.inputs[i];
    Plotly.update(place, {y: [one.frames[i]]}, {'shapes[0].x0': x, 'shapes[0].x1': x});
    says.textContent = 'input ' + x.toPrecision(4) + ': mean of the decoded report ' + one.means[i].toPrecision(4) +
      ', standard deviation ' + one.deviations[i].toPrecision(4);
  };
  handle.addEventListener('input', show);
  show();
}
Promise.all(drawn).then(() => {
  document.getElementById('js-plotly-tester')?.setAttribute('aria-hidden', 'true');  // plotly measures texts in it
  document.body.dataset.ready = 'yes';
});
const attached = document.getElementById('attachment');
if (attached) {
  const link = document.getElementById('save');
  link.href = URL.createObjectURL(new Blob([JSON.parse(attached.textContent)], {type: 'application/json'}));
}
