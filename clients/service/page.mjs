import { Mechanism } from "./mezzotint.mjs";

const [about, form, output] = ["#about", "form", "output"].map((name) => document.querySelector(name));
const button = form.querySelector("button");

try {
  const mechanism = await Mechanism.parse(await (await fetch("mechanism.json")).text());
  const [lower, upper] = [mechanism.knots[0], mechanism.knots[mechanism.knots.length - 1]];
  const asked = mechanism.categories ? mechanism.categories.join(", ") : `a number from ${lower} to ${upper}`;
  const cost = mechanism.certificate.epsilon;
  about.textContent =
    `${asked}. Noise is added here, in your browser; one of ${mechanism.levels.length} codes is sent, ` +
    `with privacy loss at most ${cost} (table ${mechanism.sha256.slice(0, 12)}, checked).`;
  button.disabled = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true; // a second report would be a second release
    const given = form.elements.value.value.trim();
    let body;
    try {
      body = mechanism.message(mechanism.categories ? given : given === "" ? NaN : Number(given));
    } catch (error) {
      output.textContent = error.message;
      button.disabled = false;
      return;
    }
    // One draw: where the server says that it did not keep the report, the very same one is sent again.
    for (let attempt = 0; attempt < 5; attempt++) {
      const answer = await fetch("report", { method: "POST", body }).catch(() => null);
      if (answer?.ok) {
        output.textContent = `Sent: code ${JSON.parse(body).code}. Thank you.`;
        return;
      }
      if (answer?.status !== 503) break;
      await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
    }
    output.textContent = "The server did not take the report.";
  });
} catch (error) {
  about.textContent = `No report can be made here: ${error.message}`;
}
