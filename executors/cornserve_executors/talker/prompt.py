"""Converts a chat and the thinker's response to the inputs of the talker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from cornserve_executors.talker.loader import LoadedTalker

HEADER_TOKENS = 3
"""The tokens with which a response begins: a start, the role and a line break."""


class TalkerPrompts:
    """Embeds texts as the talker reads them: its own projection of the thinker's embeddings of tokens."""

    def __init__(self, model: LoadedTalker) -> None:
        self._model = model
        config = model.config
        special = [config.tts_bos_token_id, config.tts_eos_token_id, config.tts_pad_token_id]
        self._start, self._end, self._padding = self.embed(special).split(1)

    @property
    def end(self) -> torch.Tensor:
        """The row after a text, of the shape [width]."""
        return self._end[0]

    @property
    def padding(self) -> torch.Tensor:
        """The row of each step after the end of a text, of the shape [width]."""
        return self._padding[0]

    def embed(self, tokens: Sequence[int]) -> torch.Tensor:
        """Returns rows of the shape [tokens, width]."""
        ids = torch.tensor(tokens, dtype=torch.long, device=self._model.embeddings.device)
        rows: torch.Tensor = self._model.talker.text_projection(self._model.embeddings[ids])
        return rows

    def tokenize(self, user_messages: Sequence[str]) -> list[int]:
        """Returns the tokens that the talker reads of a chat: those of the user, and the header of the response."""
        messages = [{"role": "user", "content": message} for message in user_messages]
        tokenizer = self._model.tokenizer
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        tokens: list[int] = tokenizer(text, add_special_tokens=False).input_ids
        *chat, header = self._messages(tokens)
        user = [message for message in chat if message[1] == self._model.config.user_token_id]
        return [token for message in user for token in message] + header[:HEADER_TOKENS]

    def decode(self, spoken: Sequence[int]) -> str:
        """Returns the text of tokens."""
        text: str = self._model.tokenizer.decode(spoken, skip_special_tokens=True)
        return text

    def _messages(self, tokens: Sequence[int]) -> Iterator[list[int]]:
        starts = [n for n, token in enumerate(tokens) if token == self._model.config.im_start_token_id]
        for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
            yield list(tokens[start:end])

    def rows(self, prompt: Sequence[int], first: int, voice: int) -> torch.Tensor:
        """Returns the rows of a prompt, of the shape [tokens, width].

        Args:
            prompt: see `tokenize`.
            first: the first token of the text.
            voice: the code of the voice.
        """
        talker, config = self._model.talker, self._model.config.talker_config
        codes = [config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id, voice]
        codes += [config.codec_pad_id, config.codec_bos_id]
        embedded_codes = talker.get_input_embeddings()(torch.tensor(codes, device=self._model.embeddings.device))
        text = torch.cat([self._padding.expand(4, -1), self._start, self.embed([first])])
        return torch.cat([self.embed(prompt), text + embedded_codes])
