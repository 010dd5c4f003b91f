"""The engine on torch tensors; imported only when a tensor or a device is given."""
