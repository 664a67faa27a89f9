"""How Headstart runs: the local stack here, images and manifests beside it."""
