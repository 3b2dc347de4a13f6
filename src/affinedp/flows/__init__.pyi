from .flow_manifold import design_flow_noise as design_flow_noise
from .graphs import from_graph as from_graph
from .injections import injection_neighbours as injection_neighbours
from .picture import draw_flow_noise as draw_flow_noise
from .power import dc_flows as dc_flows
from .power import from_pandapower as from_pandapower
