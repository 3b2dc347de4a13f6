"""Learning from records that agents keep: sums with noise, averaged over the network."""
