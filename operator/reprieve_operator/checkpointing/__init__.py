"""How a checkpoint request reaches a workload: HTTP, gRPC, a signal, a file or an annotation."""
