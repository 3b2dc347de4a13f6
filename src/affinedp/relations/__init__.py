"""The linear relations that data obeys: found in some rows, verified exactly in all of them."""
