# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""The explorer: a marimo app that helps to choose a mechanism. `mezzotint explore` serves it to this machine alone."""

import marimo  # pyright: ignore[reportMissingImports]  # the extra

app = marimo.App(width="medium", app_title="mezzotint: which mechanism?")


@app.cell
def _():
    import marimo as mo  # pyright: ignore[reportMissingImports]

    from mezzotint.core.errors import MezzotintError
    from mezzotint.core.records import above
    from mezzotint.report import choices
    from mezzotint.report.page_html import asset, table_html
    from mezzotint.report.svg import figure_html, text_of

    return MezzotintError, above, asset, choices, figure_html, mo, table_html, text_of


@app.cell
def _(mo):
    given = mo.cli_args()
    epsilon = mo.ui.slider(
        0.1, 8.0, step=0.1, value=1.0, label="epsilon of one report", show_value=True
    )
    bits = mo.ui.slider(1, 4, value=2, label="bits of one report", show_value=True)
    lower = mo.ui.number(value=-1.0, step=0.1, label="smallest input (data units)")
    upper = mo.ui.number(value=1.0, step=0.1, label="largest input (data units)")
    people = mo.ui.number(1, 10**9, value=10_000, step=1, label="people, one report each")
    prior = mo.ui.text(
        value=str(given.get("prior") or ""),
        label="inputs are like FILE:COLUMN (public data only); empty: uniform",
        full_width=True,
    )
    mo.vstack(
        [
            mo.md("# Which mechanism should I use?"),
            mo.hstack([epsilon, bits], justify="start", gap=2, wrap=True),
            mo.hstack([lower, upper, people], justify="start", gap=2, wrap=True),
            prior,
        ]
    )
    return bits, epsilon, lower, people, prior, upper


@app.cell
def _(MezzotintError, bits, choices, epsilon, lower, mo, people, prior, upper):
    situation = choices.Situation(
        epsilon=float(epsilon.value),
        bits=int(bits.value),
        lower=float(lower.value),
        upper=float(upper.value),
        people=int(people.value),
        prior=prior.value.strip(),
    )
    chosen: tuple = ()
    fault = "no family has a table here"
    try:
        with mo.status.spinner("designing every family"):
            chosen = choices.choices(situation)
    except MezzotintError as error:
        fault = str(error)
    mo.stop(not chosen, mo.callout(mo.plain_text(fault), "danger"))
    family = mo.ui.dropdown(
        [choice.name for choice in chosen], value=chosen[0].name, label="look at"
    )
    return chosen, family, situation


@app.cell
def _(above, asset, choices, chosen, family, figure_html, mo, situation, table_html, text_of):
    picked = next(choice for choice in chosen if choice.name == family.value)
    narrowest = min(chosen, key=lambda choice: choice.half_width)
    figures = (
        choices.errors(chosen),
        choices.widths(picked, situation),
        choices.distribution(picked),
    )
    drawn = "".join(figure_html(figure) for figure in figures)
    style = f"<style>{asset('figures.css')}</style>"
    mo.vstack(
        [
            mo.md(
                f"At epsilon {situation.epsilon:g} per report (every table is certified when it is made), "
                f"the least mean squared error without bias is that of the **{chosen[0].name}**. "
                f"Whatever the inputs are, the mean "
                f"of {situation.people:,} people is known best by the **{narrowest.name}**: "
                f"to ±{above(narrowest.half_width, 4)} data units."
            ),
            mo.Html(table_html(choices.table(chosen))),
            family,
            mo.Html(f'<pre class="command">$ {text_of(picked.command)}</pre>'),
            mo.Html(f'{style}<div class="figures">{drawn}</div>'),
        ]
    )
    return


if __name__ == "__main__":
    app.run()
