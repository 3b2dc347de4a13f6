from .known import clipped_sum as clipped_sum
from .known import exceedance as exceedance
from .known import gini as gini
from .known import lipschitz as lipschitz
from .known import peak as peak
from .known import range as range
