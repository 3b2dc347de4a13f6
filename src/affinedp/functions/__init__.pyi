from .known import clipped_sum as clipped_sum
from .known import exceedance as exceedance
from .known import gini as gini
from .known import lipschitz as lipschitz
from .known import mean_absolute_difference as mean_absolute_difference
from .known import order_statistic as order_statistic
from .known import peak as peak
from .known import range as range
