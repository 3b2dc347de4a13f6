from .agent import Agent as Agent
from .network_file import read_network as read_network
from .one_draw import AgentNoise as AgentNoise
from .private import PrivateConsensus as PrivateConsensus
from .pushsum import PrivatePushSum as PrivatePushSum
from .regression import PrivateRegression as PrivateRegression
from .sweeps import sweep as sweep
