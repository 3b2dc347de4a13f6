"""One draw that survives crashes and is never made twice, for gateways and agents.

``owner`` says whose draw it is, ``record`` what is kept of it, ``state`` keeps it, ``log`` ties the
file to its log, ``marker`` tells that it was made, and ``draw`` opens a state or draws it.

A second draw for the same secret is a second release.  So a draw is charged to the ledger before
it is made; the state is written, for its owner only, into a folder that no one else uses; a marker
beside it says that the draw was made; and only then the state gets its name and can be used.  A
crash before that leaves the folder, which holds the draw: nothing was sent with it, and whoever
opens the state next puts it into place if it is whole (the draw is made and paid for), and removes
it otherwise.

What is noticed, and refused unless a redraw is asked for and a ledger pays:

* a state that is damaged, or lost while its marker is there, or without the log that it needs;
* a state that is lost together with its marker, if its log (``…-wal``) or an earlier state that was
  put aside still lies beside the place, if the register of the folder (``.affinedp-drawn``) tells
  of it, or if the ledger was charged under the same label.

What cannot be noticed: a state that was removed with the whole folder, if no ledger is given, or
the charge has another label.  Nothing on the machine tells of the draw then.
Whoever may remove files can do that; a ledger kept elsewhere is what helps.
"""
