"""Events as the PyTorch profiler writes them. Times are in µs."""


def kernel(start, duration, correlation, name="k", device=0, stream=7, category="kernel"):
    args = {"device": device, "stream": stream, "correlation": correlation}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": device,
        "tid": stream,
        "ts": start,
        "dur": duration,
        "args": args,
    }


def call(start, duration, correlation, name="cudaLaunchKernel", process=100, category="cuda_runtime"):
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": process,
        "tid": process,
        "ts": start,
        "dur": duration,
        "args": {"cbid": 211, "correlation": correlation},
    }


def op(start, duration, name, process=100, category="cpu_op"):
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": process, "ts": start, "dur": duration}


def launch_and_kernel(start, correlation, launch_us=5, kernel_us=3, latency_us=1, **of_kernel):
    return [
        call(start, launch_us, correlation),
        kernel(start + launch_us + latency_us, kernel_us, correlation, **of_kernel),
    ]
