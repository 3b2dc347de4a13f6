from .refusals import BrokenTotal as BrokenTotal
from .refusals import BrokenTotalsError as BrokenTotalsError
from .refusals import TableError as TableError
from .row_groups import with_total_rows as with_total_rows
from .table_file import read_table_release as read_table_release
from .table_release import ReleasedTable as ReleasedTable
from .table_release import TableDesign as TableDesign
from .table_release import TableRelease as TableRelease
