"""The built-in worker: an agent with file, search and shell tools on its workspace."""
