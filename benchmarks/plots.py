"""How long the plots of a run take.

Run `python benchmarks/plots.py [--run-id latest]` against a store with the run, such as an imported
one; it takes seconds. Each plot is made and drawn as SVG. `make`: from the content of the report to
the specification, with the placement of labels. `draw`: from there to the SVG; the first plot pays
for loading the package that draws. CPU seconds of the process, which another load on the machine
changes less than the time of a clock.
"""

import time

import click
from measuring import laid_out, number, print_table

from aegish_dist import api
from aegish_dist.render.charts.catalogue import CHARTS, make_chart
from aegish_dist.render.charts.chart import NoChart
from aegish_dist.render.charts.drawing import drawn


@click.command(help=laid_out(__doc__))
@click.option("--run-id", default="latest", show_default=True)
def main(run_id: str) -> None:
    """Draw every plot of a run once."""
    with api.Workspace(api.load_settings()) as workspace:
        found = api.find_run(workspace.engine, run_id)
        parts = list(api.ReportPart)
        data = api.report_data(workspace.engine, found, api.Opinion(), parts=parts)
    rows, began = [], time.process_time()
    for name in CHARTS:
        start = time.process_time()
        if isinstance(make_chart(data, name), NoChart):
            continue
        specification = api.chart_specification(data, name)
        made = time.process_time()
        svg = drawn(specification, "svg", title=name)
        done = time.process_time()
        rows.append(
            {
                "plot": name,
                "make, s": number(made - start),
                "draw, s": number(done - made),
                "bytes": f"{len(svg):,}",
            }
        )
    total = number(time.process_time() - began)
    print_table(f"CPU seconds of the plots of run {found}, {total} in all", rows)


if __name__ == "__main__":
    main()
