"""Feature spaces: kernels, feature maps and their metric."""
