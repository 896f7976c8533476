"""Pages about the user's own mechanisms, reports and runs: pure data first, drawing last.

`page_of` reads a file and says what it holds; `html_page`, `write_png` and `sheet` draw what it
returns.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.report.contents import (
        Curve as Curve,
        Figure as Figure,
        Page as Page,
        Section as Section,
        Table as Table,
    )
    from mezzotint.report.drawings import sheet as sheet, write_png as write_png
    from mezzotint.report.federated_pages import federated_page as federated_page
    from mezzotint.report.file_pages import page_of as page_of
    from mezzotint.report.mechanism_pages import (
        mechanism_page as mechanism_page,
        tradeoff_figure as tradeoff_figure,
    )
    from mezzotint.report.page_html import html_page as html_page
    from mezzotint.report.reports_pages import reports_page as reports_page

__getattr__, __dir__ = on_demand(__name__, __file__)
