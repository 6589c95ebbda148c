"""The CUDA printer: tile program -> CUDA C++ and the launches that run it. Knows nodes and homes, no workloads."""

from redfuser.codegen.cuda.kernel import cuda_program, print_cuda, print_phases
from redfuser.codegen.cuda.nodes import CudaProgram, Launch, Parameter, TeamPhase
from redfuser.codegen.cuda.schedule import schedule
from redfuser.codegen.cuda.target import CudaTarget

__all__ = [
    "CudaProgram",
    "CudaTarget",
    "Launch",
    "Parameter",
    "TeamPhase",
    "cuda_program",
    "print_cuda",
    "print_phases",
    "schedule",
]
