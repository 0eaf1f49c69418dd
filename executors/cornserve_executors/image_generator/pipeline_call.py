"""Runs a call of a diffusers pipeline step by step, so that the calls of several images take turns on a device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import PIL.Image
import torch
from diffusers import FlowMatchEulerDiscreteScheduler

from cornserve_executors.device_thread import device_threads

StepCallback = Callable[[Any, int, Any, dict[str, Any]], dict[str, Any]]
"""diffusers' `callback_on_step_end`."""


class PreviewScheduler(FlowMatchEulerDiscreteScheduler):  # type: ignore[misc]
    """Keeps the image that the denoiser expects at the end."""

    expected: torch.Tensor | None = None
    """The latents of the image, as of the last step."""

    def step(
        self, model_output: torch.Tensor, timestep: torch.Tensor, sample: torch.Tensor, *args: Any, **options: Any
    ) -> Any:
        stepped = super().step(model_output, timestep, sample, *args, **options)
        sigma = self.sigmas[self.step_index - 1]
        self.expected = (sample - sigma * model_output).to(model_output.dtype)
        return stepped


class PipelineCall:
    """An image. The call runs in its own thread, which is only awake while `advance` waits for it.

    Args:
        call: calls the pipeline with the given callback, and returns the image.
        scheduler: that of the call.
        steps: the number of denoising steps.
        preview_steps: the steps after which there is a preview.
    """

    def __init__(
        self,
        call: Callable[[StepCallback], PIL.Image.Image],
        scheduler: PreviewScheduler,
        steps: int,
        preview_steps: frozenset[int],
    ) -> None:
        self.steps = steps
        self.step = 0
        self.preview: torch.Tensor | None = None
        self._call = call
        self._scheduler = scheduler
        self._preview_steps = preview_steps
        self._image: PIL.Image.Image | None = None
        self._failure: BaseException | None = None
        self._is_closed = False
        self._resumed = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="image", daemon=True)

    @property
    def is_ready(self) -> bool:
        return True

    @property
    def is_done(self) -> bool:
        """Whether all steps are completed, or one has failed."""
        return self.step == self.steps or self._failure is not None

    def advance(self) -> None:
        """Runs the next step: the first one with the text encoder, or after the last one, the VAE. Blocks.

        Raises the exception of the pipeline if the device has failed. Others are kept for `check`.
        """
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._resumed.release()
        self._paused.acquire()
        if isinstance(self._failure, torch.AcceleratorError):
            raise self._failure

    def check(self) -> None:
        """Raises the exception of the pipeline, if a step has failed."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> PIL.Image.Image:
        """Decodes and returns the image after the last step. Blocks."""
        self.advance()
        self.check()
        assert self._image is not None
        return self._image

    def close(self) -> None:
        """Ends the thread, after the current step. A call that has not ended is abandoned."""
        self._is_closed = True
        self._resumed.release()

    def _run(self) -> None:
        torch.set_num_threads(device_threads())
        try:
            with torch.inference_mode():
                self._image = self._call(self._on_step)
        except _ClosedError:
            pass
        except BaseException as error:
            self._failure = error
        finally:
            self._paused.release()

    def _on_step(self, pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        self.step = step + 1
        self.preview = self._scheduler.expected if self.step in self._preview_steps else None
        self._paused.release()
        self._resumed.acquire()
        if self._is_closed:
            raise _ClosedError
        return tensors


class _ClosedError(Exception):
    """The image is not needed anymore."""
