"""One file a contender: how it packs a layer, and how it is called."""
