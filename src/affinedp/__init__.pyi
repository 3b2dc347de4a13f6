from .budget.ledger import BudgetExceededError as BudgetExceededError
from .budget.ledger import Ledger as Ledger
from .designs.gaussian import design_gaussian as design_gaussian
from .designs.knorm import design_knorm as design_knorm
from .designs.laplace import design_laplace as design_laplace
from .designs.laplace import iid_noise as iid_noise
from .discovery.ask import discover as discover
from .equations.manifold import AffineManifold as AffineManifold
from .errors import AffineDPError as AffineDPError
from .feedback.steps import ReleaseInSteps as ReleaseInSteps
from .mechanism import Mechanism as Mechanism
from .neighbours.adjacency import Adjacency as Adjacency
from .neighbours.adjacency import DirectionAdjacency as DirectionAdjacency
from .neighbours.adjacency import FreeSetAdjacency as FreeSetAdjacency
from .neighbours.adjacency import Sensitivity as Sensitivity
from .neighbours.circuit_adjacency import CircuitAdjacency as CircuitAdjacency
from .neighbours.definition import NeighbourAnswer as NeighbourAnswer
from .promise.calibration import gaussian_delta as gaussian_delta
from .promise.calibration import gaussian_epsilon as gaussian_epsilon
from .promise.calibration import gaussian_sensitivity as gaussian_sensitivity
from .promise.calibration import gaussian_sigma as gaussian_sigma
from .promise.calibration import gaussian_sigma_bound as gaussian_sigma_bound
from .promise.guarantee import Guarantee as Guarantee
from .promise.guarantee import compose as compose
from .promise.pair import verify_pair as verify_pair
from .promise.verification import verify as verify

__version__: str
