"""Converts a chat and the thinker's response to the inputs of the talker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cornserve_executors.talker.prompt import TalkerPrompt, ThinkerPrompt, media_positions

HEADER_TOKENS = 3
"""The tokens with which a response begins: a start, the role and a line break."""


class TalkerPrompts:
    """Embeds texts as the talker reads them: its own projection of the thinker's embeddings of tokens."""

    def __init__(self, config: Any, tokenizer: Any, talker: Any, embeddings: torch.Tensor) -> None:
        """Embeds the tokens that all prompts contain.

        Args:
            talker: transformers' `Qwen3OmniMoeTalkerForConditionalGeneration`.
            embeddings: the thinker's embeddings of tokens, of the shape [tokens, width].
        """
        self._config = config
        self._tokenizer = tokenizer
        self._talker = talker
        self._embeddings = embeddings
        special = [config.tts_bos_token_id, config.tts_eos_token_id, config.tts_pad_token_id]
        self._start, self._end, self._padding = self.embed(special).split(1)
        ids = talker.config
        self._media_tokens = {ids.image_token_id, ids.video_token_id, ids.audio_token_id}

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
        ids = torch.tensor(tokens, dtype=torch.long, device=self._embeddings.device)
        rows: torch.Tensor = self._talker.text_projection(self._embeddings[ids])
        return rows

    def of_texts(self, user_messages: Sequence[str], first: int, voice: int) -> TalkerPrompt:
        """Returns the prompt of a chat of texts.

        Args:
            first: the first token of the response.
            voice: the code of the voice.
        """
        messages = [{"role": "user", "content": message} for message in user_messages]
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        user = self._user_tokens(tokens)
        rows = torch.cat([self.embed(user), self._header(tokens, first, voice)])
        return TalkerPrompt(rows, torch.arange(len(rows), device=rows.device).expand(3, -1))

    def of_media(self, media: ThinkerPrompt, first: int, voice: int) -> TalkerPrompt:
        """Returns the prompt of a chat with media. See `of_texts` for `first` and `voice`."""
        prompt = media.prompt
        if not prompt.tokens:
            return self.of_texts([""], first, voice)
        user = self._user_tokens(prompt.tokens)
        embedded = self.embed(user)
        is_medium = torch.tensor([token in self._media_tokens for token in user], device=embedded.device)
        embedded[is_medium] = self._talker.hidden_projection(media.states.to(embedded))
        rows = torch.cat([embedded, self._header(prompt.tokens, first, voice)])
        padding = [self._config.tts_pad_token_id] * (len(rows) - len(user))
        positions = media_positions(self._talker, [*user, *padding], prompt, rows.device)
        return TalkerPrompt(rows, positions, int(positions.max()) + 1 - len(rows))

    def _user_tokens(self, tokens: Sequence[int]) -> list[int]:
        """Returns the tokens of the messages of the user, which are all that the talker reads of a chat."""
        messages = self._messages(tokens)
        user = [message for message in messages if message[1:2] == [self._config.user_token_id]]
        return [token for message in user for token in message]

    def _messages(self, tokens: Sequence[int]) -> Iterator[list[int]]:
        starts = [n for n, token in enumerate(tokens) if token == self._config.im_start_token_id]
        for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
            yield list(tokens[start:end])

    def _header(self, tokens: Sequence[int], first: int, voice: int) -> torch.Tensor:
        """Returns the rows with which the response begins, of the shape [9, width].

        Args:
            tokens: those of the chat, which end with the header of the response.
            first, voice: see `of_texts`.
        """
        talker, config = self._talker, self._talker.config
        codes = [config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id, voice]
        codes += [config.codec_pad_id, config.codec_bos_id]
        embedded_codes = talker.get_input_embeddings()(torch.tensor(codes, device=self._embeddings.device))
        text = torch.cat([self._padding.expand(4, -1), self._start, self.embed([first])])
        *_, header = self._messages(tokens)
        return torch.cat([self.embed(header[:HEADER_TOKENS]), text + embedded_codes])
