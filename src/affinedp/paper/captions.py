"""What the figures of the reproduction show: a caption for readers, words for who cannot see."""

from __future__ import annotations

# by the name of the file: the caption, and the text in place of the picture
CAPTIONS: dict[str, tuple[str, str]] = {
    "control_figure_2": (
        "Figure 2. Tracking errors of the vehicle, one draw of noise, ε = 1, δ = 0.01. Red: the "
        "paper's noise; blue: the least that keeps the same promise. Boxes show quartiles, "
        "whiskers 5 and 95 % of the runs; lines are exact, dots simulated (two standard errors).",
        "Four panels over a hundred steps: box plots of position and velocity errors around "
        "zero, and their mean squares. The blue curve of the least noise lies below the red one "
        "of the paper's; simulated dots lie on the exact lines.",
    ),
    "control_figure_3": (
        "Figure 3. Mean-square tracking errors at the end against ε. Blue: one draw; red: fresh "
        "draws; dashed: the paper's noise; solid: the least. Lines are exact, dots simulated with "
        "two standard errors.",
        "Two panels with falling curves, for position and velocity. One draw lies below fresh "
        "draws at every ε, and the least noise below the paper's, most of all at small ε.",
    ),
    "control_velocities": (
        "Not in the paper. Its noise hides positions and reveals velocities exactly; designs that "
        "hide both cost more. Lines are exact, dots simulated with two standard errors.",
        "Four panels: an eavesdropper's error in the velocity, zero under the paper's noise; the "
        "noise on the sent position by time; mean-square errors of position and velocity for four "
        "choices of what is protected.",
    ),
    "consensus_figure_4": (
        "Figure 4. The ten agents, their links and initial values. Orange: agents whose weights "
        "sum to exactly 1, where the paper asks for less.",
        "A ring of ten numbered agents with fourteen links; agents 2, 5, 7 and 10 are orange.",
    ),
    "consensus_figure_5": (
        "Figure 5. The mean error of every agent dies out. Lines are exact, dots are means of "
        "simulated runs with two standard errors.",
        "Ten curves that start between minus 75 and 85 and meet at zero after some twenty steps; "
        "a second panel enlarges the end.",
    ),
    "consensus_figure_6": (
        "Figure 6. Mean-square errors with Gaussian noise. Left (or above): the paper's noise; "
        "right (or below): the least for the same promise. Dashed: the bounds of Proposition 1; "
        "dots are simulated, with two standard errors.",
        "Two panels of three falling curves, for three values of ε, that level off below dashed "
        "lines; all curves level off lower with the least noise.",
    ),
    "consensus_figure_7": (
        "Figure 7. Mean-square errors with Laplace noise, where the paper's scale is the least. "
        "Dashed: the bounds of Proposition 1; dots are simulated, with two standard errors.",
        "Three falling curves, for three values of ε, that level off below dashed lines.",
    ),
    "consensus_readouts": (
        "Not in the paper. Three ways to read the average off, with the same promise: the state, "
        "as in the paper; the message; the corrected message. Dots are simulated, two standard "
        "errors.",
        "Two panels, Gaussian and Laplace noise. Messages and corrected messages level off at "
        "about a tenth of the error of states.",
    ),
    "consensus_large": (
        "Not in the paper. A hundred thousand agents in a square agree: messages at five times, "
        "and the squared error of one run with its exact limits (dotted); red: state, blue: "
        "message, green: corrected.",
        "Five coloured squares, from noise to one even colour as time passes, and falling curves "
        "of squared errors of three read-outs.",
    ),
}
