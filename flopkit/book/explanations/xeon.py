"""Two cores of a Xeon: what probably explains each prediction that missed on them, with
the numbers of their recording."""

from __future__ import annotations

from flopkit.book.explanations.machine import Machine

__all__ = ["XEON"]

XEON = Machine(
    device="xeon",
    scale="cpu",
    name="two cores of a Xeon",
    heading="Two cores of a Xeon: kernels that neither memory nor arithmetic limits",
    lead="Here we could often say which limit does not hold a kernel back, and only guess what does.",
    digits=4,
    missing={
        "cnn_operators": "Its prediction is about GPUs, and we did not run it on the Xeon.",
        "strategies": "It is younger than the recording.",
        "wire": "It is younger than the recording.",
    },
)


@XEON.explains
def matmul_sizes(of: Machine) -> str:
    return (
        "The prediction assumes that a small product's time is mostly the cost of a call. But a call costs "
        f"{of.si(of.ceilings['launch_s'], 's')} here, and a product of 64 × 64 took {of.time('matmul_sizes', n=64)}, so most of it is "
        "probably spent inside the matrix library."
    )


@XEON.explains
def dense_batch(of: Machine) -> str:
    return (
        f"With 8 tokens the layer moves its bytes at {of.moved('dense_batch', tokens=8)}, while the memory can do "
        f"{of.si(of.bandwidth, 'B/s')}. So neither memory nor arithmetic limits it. With one and two tokens it reaches "
        f"{of.reached('dense_batch', tokens=1)} and {of.reached('dense_batch', tokens=2)} of the bandwidth, so torch probably takes another "
        "kernel from four tokens on, one that is slow with 8."
    )


@XEON.explains
def convolutions(of: Machine) -> str:
    ridge = of.peak("fp32") / of.bandwidth
    return (
        "We had reckoned with a GPU's ridge point. At 2.25 FLOPs per byte, the depthwise convolution can reach up to "
        f"{100 * 2.25 / ridge:.0f} % of the peak, because the ridge point lies at only {ridge:.1f} FLOPs per byte; a tenth would be the most "
        "only on a device whose ridge point is 22.5 or higher. The depthwise and the pointwise convolution are faster with channels last. "
        "With channels first, oneDNN, torch's library on CPUs, reorders the depthwise layer's map before and after it, as its log shows."
    )


@XEON.explains
def attention_kernels(of: Machine) -> str:
    return (
        "At 2,048 tokens the scores of the math kernel take 134 MB, and each step of it makes a new tensor of that size. So moving the scores "
        "is probably not all that slows it: the system hands out new memory page by page, which takes time, too. The mask saves less than "
        "half of flash's time. One reason is that blocks on the diagonal are computed whole and then masked; it probably explains only a part."
    )


@XEON.explains
def experts(of: Machine) -> str:
    each, one = (of.flops("experts", tokens=1024, load=load) for load in ("balanced", "dense"))
    return (
        f"The experts reach {each}, and the dense layer {one}. Each expert has an eighth of the rows, so its products are smaller. And "
        "gathering rows and adding them up takes time in which nothing is multiplied. We did not measure these two effects apart."
    )


@XEON.explains
def cnns(of: Machine) -> str:
    vgg = of.cases("cnns")(network="vgg16", method="batch")["rates"]["flops_per_s"] / of.peak("fp32")
    depthwise, both = (
        of.moved("backward_ratio", layer="depthwise convolution", passes=passes)
        for passes in ("forward", "forward and backward")
    )
    return (
        "The images have only 64 × 64 pixels, in batches of four. So VGG-16, the network to compare with, reaches only "
        f"{100 * vgg:.0f} % of the peak, and the two small ones are limited neither by memory nor by arithmetic. Their depthwise "
        f"convolutions are probably a reason: alone, such a layer moves {depthwise} forward and {both} in both passes. In an epoch the "
        "optimiser reads and writes all parameters after four images, which costs ResNet-18 more than MobileNetV2, which has less than a "
        "third of its parameters."
    )


@XEON.explains
def fusion(of: Machine) -> str:
    apart, fused = (of.moved("fusion", program="chain", form=form) for form in ("eager", "compiled"))
    return (
        "Two things shrink the gain of the chain. Its operators probably find some of their tensors of 17 MB in the cache: they move "
        f"{apart}, more than the memory's {of.si(of.bandwidth, 'B/s')}. And the fused kernel moves only {fused}, so the arithmetic of GELU "
        "probably takes most of its time."
    )


@XEON.explains
def decode(of: Machine) -> str:
    return (
        "For one sequence the products of a matrix with a vector read the weights somewhat below the bandwidth. At the short context the step "
        "slows down from four sequences on, like the dense layer above. At the long one it slows down already with two, which we cannot explain."
    )


@XEON.explains
def all_reduce(of: Machine) -> str:
    return (
        "With gloo a process waits for the other's data, and meanwhile its core is probably free for the backward pass."
    )
