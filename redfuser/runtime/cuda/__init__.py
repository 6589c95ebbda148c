"""CUDA: compile it with NVRTC, run it on this machine's CPU with every access checked, or launch it on a device."""
