"""ptxtune bench: our kernels beside other packages', checked and timed alike."""
