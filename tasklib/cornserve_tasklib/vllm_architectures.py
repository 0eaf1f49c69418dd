"""Architectures, arguments and parsers of vLLM, from `python -m scripts.vllm_architectures`.

Architectures are names in the field `architectures` of a model's config.json.
"""

# ruff: noqa: SIM905 - a list would have a line for each name

from __future__ import annotations

from typing import Final, Literal

from pydantic import JsonValue
from typing_extensions import TypedDict

from cornserve_tasklib.media import Modality

VLLM_VERSION: Final = "0.32.0"

MULTIMODAL_CHATS: Final = frozenset(
    """
        AriaForConditionalGeneration AudioFlamingo3ForConditionalGeneration BagelForConditionalGeneration
        BailingMoeV3VLForConditionalGeneration BeeForConditionalGeneration Blip2ForConditionalGeneration
        Cohere2VisionForConditionalGeneration CohereCompassForConditionalGeneration Cosmos3EdgeForConditionalGeneration
        Cosmos3ForConditionalGeneration DeepseekOCR2ForCausalLM DeepseekOCRForCausalLM DeepseekV41ForCausalLM
        DeepseekVLV2ForCausalLM DiffusionGemmaForBlockDiffusion DotsOCRForCausalLM Eagle2_5_VLForConditionalGeneration
        Emu3ForConditionalGeneration Ernie4_5_VLMoeForConditionalGeneration Exaone4_5_ForConditionalGeneration
        FunAudioChatForConditionalGeneration GLM4VForCausalLM Gemma3ForConditionalGeneration
        Gemma3nForConditionalGeneration Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration
        Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration Glm5NextForConditionalGeneration
        GlmAsrForConditionalGeneration GlmOcrForConditionalGeneration Granite4VisionForConditionalGeneration
        GraniteSpeechForConditionalGeneration GraniteSpeechPlusForConditionalGeneration H2OVLChatModel
        HCXVisionV2ForCausalLM HfMoondream HunYuanVLForConditionalGeneration Idefics3ForConditionalGeneration
        InklingForConditionalGeneration InternS1ForConditionalGeneration InternS1ProForConditionalGeneration
        InternS2MobiusForConditionalGeneration InternS2PreviewForConditionalGeneration InternVLChatModel
        InternVLForConditionalGeneration IsaacForConditionalGeneration KananaVForConditionalGeneration
        KeyeForConditionalGeneration KeyeVL1_5ForConditionalGeneration KimiK25ForConditionalGeneration
        KimiK3ForConditionalGeneration KimiVLForConditionalGeneration Lfm2VlForConditionalGeneration
        LightOnOCRForConditionalGeneration Llama4ForConditionalGeneration Llama_Nemotron_Nano_VL
        LlavaForConditionalGeneration LlavaNextForConditionalGeneration LlavaNextVideoForConditionalGeneration
        LlavaOnevision2ForConditionalGeneration LlavaOnevisionForConditionalGeneration MiDashengLMModel
        MiMoV2OmniForCausalLM MiniCPMO MiniCPMV MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration
        MiniMaxM3SparseForConditionalGeneration Mistral3ForConditionalGeneration Molmo2ForConditionalGeneration
        MolmoForCausalLM Moondream3ForCausalLM MoonshotKimiaForCausalLM MossAudioModel MuseGlimmerForCausalLM
        MuseGlimmerForConditionalGeneration NVLM_D NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2
        NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3 NemotronParseForConditionalGeneration
        OpenCUAForConditionalGeneration OpenPanguVLForConditionalGeneration OpenVLAForActionPrediction Ovis Ovis2_5
        Ovis2_6ForCausalLM Ovis2_6_MoeForCausalLM PaddleOCRVLForConditionalGeneration PaliGemmaForConditionalGeneration
        Phi3VForCausalLM Phi4ForCausalLMV Phi4MMForCausalLM PixtralForConditionalGeneration
        QianfanOCRForConditionalGeneration Qwen2AudioForConditionalGeneration Qwen2VLForConditionalGeneration
        Qwen2_5OmniForConditionalGeneration Qwen2_5OmniModel Qwen2_5_VLForConditionalGeneration
        Qwen3ASRForConditionalGeneration Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration
        Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration
        Qwen4ExpForConditionalGeneration RForConditionalGeneration SkyworkR1VChatModel SmolVLMForConditionalGeneration
        Step3VLForConditionalGeneration Step3p7ForConditionalGeneration StepVLForConditionalGeneration UltravoxModel
        UnlimitedOCRForCausalLM VibeVoiceAsrForConditionalGeneration VoxtralForConditionalGeneration
    """.split()
)
"""They generate text from prompts with media."""

CHAT_MEDIA: Final[dict[Modality, frozenset[str]]] = {
    "image": frozenset(
        """
            AriaForConditionalGeneration BagelForConditionalGeneration BailingMoeV3VLForConditionalGeneration
            BeeForConditionalGeneration Blip2ForConditionalGeneration Cohere2VisionForConditionalGeneration
            CohereCompassForConditionalGeneration Cosmos3EdgeForConditionalGeneration Cosmos3ForConditionalGeneration
            DeepseekOCR2ForCausalLM DeepseekOCRForCausalLM DeepseekV41ForCausalLM DeepseekVLV2ForCausalLM
            DiffusionGemmaForBlockDiffusion DotsOCRForCausalLM Eagle2_5_VLForConditionalGeneration
            Ernie4_5_VLMoeForConditionalGeneration Exaone4_5_ForConditionalGeneration GLM4VForCausalLM
            Gemma3ForConditionalGeneration Gemma3nForConditionalGeneration Gemma4ForConditionalGeneration
            Gemma4UnifiedForConditionalGeneration Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration
            Glm5NextForConditionalGeneration GlmOcrForConditionalGeneration Granite4VisionForConditionalGeneration
            H2OVLChatModel HCXVisionV2ForCausalLM HfMoondream Idefics3ForConditionalGeneration
            InklingForConditionalGeneration InternS1ForConditionalGeneration InternS1ProForConditionalGeneration
            InternS2MobiusForConditionalGeneration InternS2PreviewForConditionalGeneration InternVLChatModel
            InternVLForConditionalGeneration IsaacForConditionalGeneration KeyeForConditionalGeneration
            KeyeVL1_5ForConditionalGeneration KimiK3ForConditionalGeneration KimiVLForConditionalGeneration
            Lfm2VlForConditionalGeneration LightOnOCRForConditionalGeneration Llama4ForConditionalGeneration
            Llama_Nemotron_Nano_VL LlavaForConditionalGeneration LlavaNextForConditionalGeneration
            LlavaOnevision2ForConditionalGeneration LlavaOnevisionForConditionalGeneration MiMoV2OmniForCausalLM
            MiniCPMO MiniCPMV MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration
            MiniMaxM3SparseForConditionalGeneration Mistral3ForConditionalGeneration Molmo2ForConditionalGeneration
            MolmoForCausalLM Moondream3ForCausalLM MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration NVLM_D
            NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3
            NemotronH_Super_Omni_Reasoning_V3 NemotronParseForConditionalGeneration OpenCUAForConditionalGeneration
            OpenPanguVLForConditionalGeneration OpenVLAForActionPrediction Ovis Ovis2_5 Ovis2_6ForCausalLM
            Ovis2_6_MoeForCausalLM PaddleOCRVLForConditionalGeneration PaliGemmaForConditionalGeneration
            Phi3VForCausalLM Phi4ForCausalLMV Phi4MMForCausalLM PixtralForConditionalGeneration
            QianfanOCRForConditionalGeneration Qwen2VLForConditionalGeneration Qwen2_5OmniForConditionalGeneration
            Qwen2_5OmniModel Qwen2_5_VLForConditionalGeneration Qwen3OmniMoeForConditionalGeneration
            Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration
            Qwen3_5MoeForConditionalGeneration Qwen4ExpForConditionalGeneration RForConditionalGeneration
            SkyworkR1VChatModel SmolVLMForConditionalGeneration Step3VLForConditionalGeneration
            Step3p7ForConditionalGeneration StepVLForConditionalGeneration UnlimitedOCRForCausalLM
        """.split()
    ),
    "audio": frozenset(
        """
            AudioFlamingo3ForConditionalGeneration DiffusionGemmaForBlockDiffusion FunAudioChatForConditionalGeneration
            Gemma3nForConditionalGeneration Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration
            GlmAsrForConditionalGeneration GraniteSpeechForConditionalGeneration
            GraniteSpeechPlusForConditionalGeneration InklingForConditionalGeneration MiDashengLMModel
            MiMoV2OmniForCausalLM MiniCPMO MoonshotKimiaForCausalLM MossAudioModel NemotronH_Nano_Omni_Reasoning_V3
            NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3 Phi4MMForCausalLM
            Qwen2AudioForConditionalGeneration Qwen2_5OmniForConditionalGeneration Qwen2_5OmniModel
            Qwen3ASRForConditionalGeneration Qwen3OmniMoeForConditionalGeneration UltravoxModel
            VoxtralForConditionalGeneration
        """.split()
    ),
    "video": frozenset(
        """
            Cosmos3EdgeForConditionalGeneration Cosmos3ForConditionalGeneration DiffusionGemmaForBlockDiffusion
            Ernie4_5_VLMoeForConditionalGeneration Exaone4_5_ForConditionalGeneration Gemma4ForConditionalGeneration
            Gemma4UnifiedForConditionalGeneration Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration
            Glm5NextForConditionalGeneration GlmOcrForConditionalGeneration HCXVisionV2ForCausalLM
            InternS1ForConditionalGeneration InternS1ProForConditionalGeneration InternS2MobiusForConditionalGeneration
            InternS2PreviewForConditionalGeneration InternVLChatModel InternVLForConditionalGeneration
            KeyeForConditionalGeneration KeyeVL1_5ForConditionalGeneration LlavaNextVideoForConditionalGeneration
            LlavaOnevision2ForConditionalGeneration LlavaOnevisionForConditionalGeneration MiMoV2OmniForCausalLM
            MiniCPMO MiniCPMV MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration
            MiniMaxM3SparseForConditionalGeneration Molmo2ForConditionalGeneration MuseGlimmerForCausalLM
            MuseGlimmerForConditionalGeneration NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2
            NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3 OpenPanguVLForConditionalGeneration Ovis2_5
            Ovis2_6ForCausalLM Ovis2_6_MoeForCausalLM Qwen2VLForConditionalGeneration
            Qwen2_5OmniForConditionalGeneration Qwen2_5OmniModel Qwen2_5_VLForConditionalGeneration
            Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration
            Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration Qwen4ExpForConditionalGeneration
        """.split()
    ),
}
"""Architectures of `MULTIMODAL_CHATS` that accept media of a modality."""

TEXT_CHATS: Final = frozenset(
    """
        AXK1ForCausalLM AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM BailingMoeForCausalLM
        BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BloomForCausalLM
        ChatGLMForConditionalGeneration ChatGLMModel Cohere2ForCausalLM Cohere2MoeForCausalLM CohereForCausalLM
        CwmForCausalLM DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM DeepseekV2ForCausalLM
        DeepseekV32ForCausalLM DeepseekV3BidirectionalModel DeepseekV3ForCausalLM DeepseekV4ForCausalLM
        Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM Exaone4ForCausalLM ExaoneForCausalLM ExaoneMoEForCausalLM
        ExaoneMoeForCausalLM FalconForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM FlexOlmoForCausalLM
        GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM GPTNeoXForCausalLM Gemma2ForCausalLM Gemma2Model
        Gemma3ForCausalLM Gemma3nForCausalLM Gemma4ForCausalLM GemmaForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM
        Glm4MoeLiteForCausalLM Glm5NextForCausalLM GlmForCausalLM GlmMoeDsaForCausalLM GptOssForCausalLM
        GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeHybridForCausalLM GraniteMoeSWAForCausalLM
        GraniteMoeSharedForCausalLM GraniteSWAForCausalLM HYV3ForCausalLM HYV4ForCausalLM HrmTextForCausalLM
        HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM HyperCLOVAXForCausalLM IQuestCoderForCausalLM
        IQuestLoopCoderForCausalLM InklingForCausalLM InternLM2ForCausalLM InternLM3ForCausalLM Jais2ForCausalLM
        JambaForCausalLM K2HorizonForCausalLM KimiLinearForCausalLM LLaMAForCausalLM LagunaForCausalLM Lfm2ForCausalLM
        Lfm2MoeForCausalLM Llama4ForCausalLM LlamaForCausalLM LlamaModel LongcatFlashForCausalLM
        LongcatFlashNgramForCausalLM Mamba2ForCausalLM MambaForCausalLM MellumForCausalLM MiMoForCausalLM
        MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM MiniMaxM2ForCausalLM
        MiniMaxM3SparseForCausalLM Ministral3ForCausalLM MistralForCausalLM MistralLarge3ForCausalLM MistralModel
        MixtralForCausalLM NanbeigeForCausalLM NemotronForCausalLM NemotronHForCausalLM NemotronHPuzzleForCausalLM
        OPTForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OlmoHybridForCausalLM OlmoeForCausalLM
        OrionForCausalLM PanguEmbeddedForCausalLM PanguProMoEV2ForCausalLM PanguUltraMoEForCausalLM Param2MoEForCausalLM
        Phi3ForCausalLM PhiForCausalLM PhiMoEForCausalLM Plamo3ForCausalLM Qwen2ForCausalLM Qwen2Model
        Qwen2MoeForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM Qwen3_5ForCausalLM
        Qwen3_5MoeForCausalLM Qwen4ExpForCausalLM Rnj1ForCausalLM SarvamMLAForCausalLM SarvamMoEForCausalLM
        SeedOssForCausalLM SmolLM3ForCausalLM SolarForCausalLM StableLmForCausalLM Starcoder2ForCausalLM
        Step1ForCausalLM Step3TextForCausalLM Step3p5ForCausalLM TeleChat2ForCausalLM TeleChat3ForCausalLM
        TeleFLMForCausalLM VaultGemmaForCausalLM Zamba2ForCausalLM
    """.split()
)
"""They generate text from text."""

STATEFUL: Final = frozenset(
    """
        BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration ColBERTLfm2Model
        ColQwen3_5 FalconH1ForCausalLM FalconMambaForCausalLM Glm5NextForCausalLM Glm5NextForConditionalGeneration
        GraniteMoeHybridForCausalLM InternS2MobiusForConditionalGeneration InternS2PreviewForConditionalGeneration
        JambaForCausalLM JambaForSequenceClassification KimiK3ForConditionalGeneration KimiLinearForCausalLM
        Lfm2ForCausalLM Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration Mamba2ForCausalLM MambaForCausalLM
        MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration NemotronHForCausalLM
        NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3
        NemotronH_Super_Omni_Reasoning_V3 OlmoHybridForCausalLM Qwen3NextForCausalLM Qwen3_5ForCausalLM
        Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration Qwen4ExpForCausalLM
        Qwen4ExpForConditionalGeneration Zamba2ForCausalLM
    """.split()
)
"""Layers of these models keep a state that is not the keys and values of each token."""

FURTHER_TEXTS: Final = frozenset(
    """
        AXK1ForSequenceClassification AXK1Model AXK2ForCausalLM AXK2ForSequenceClassification AXK2Model AfmoeModel
        AlbertForSequenceClassification AlbertModel ApertusModel ArceeForSequenceClassification ArceeModel
        AriaTextForCausalLM AriaTextModel BambaForCausalLM BambaModel BertGenerationDecoder BertGenerationEncoder
        BertLMHeadModel BioGptForCausalLM BioGptForSequenceClassification BioGptModel BitNetForCausalLM BitNetModel
        BloomForSequenceClassification BloomModel BltForCausalLM BltModel CLIPTextModel CTRLForSequenceClassification
        CTRLLMHeadModel CTRLModel CamembertForCausalLM CamembertForSequenceClassification CamembertModel Cohere2Model
        Cohere2MoeModel CohereCompassForCausalLM CohereCompassTextForSequenceClassification CohereCompassTextModel
        CohereModel CwmModel Data2VecTextForCausalLM Data2VecTextForSequenceClassification Data2VecTextModel DbrxModel
        DeepseekV2ForSequenceClassification DeepseekV2Model DeepseekV32Model DeepseekV3ForSequenceClassification
        DeepseekV3Model DeepseekV4Model DiffLlamaForCausalLM DiffLlamaForSequenceClassification DiffLlamaModel
        DistilBertForSequenceClassification DistilBertModel DogeForCausalLM DogeForSequenceClassification DogeModel
        Dots1ForCausalLM Dots1Model ElectraForCausalLM ElectraForSequenceClassification ElectraModel Emu3Model
        Ernie4_5Model Ernie4_5_MoeModel ErnieForCausalLM ErnieForSequenceClassification ErnieModel
        EsmForSequenceClassification EsmModel EsmcForSequenceClassification EsmcModel EuroBertForSequenceClassification
        EuroBertModel Exaone4ForSequenceClassification Exaone4Model ExaoneMoeModel FNetForSequenceClassification
        FNetModel FalconForSequenceClassification FalconH1Model FalconMambaModel FalconModel FlexOlmoModel FuyuModel
        GPT2Model GPTBigCodeForSequenceClassification GPTBigCodeModel GPTJForSequenceClassification GPTJModel
        GPTNeoXForSequenceClassification GPTNeoXModel Gemma2ForSequenceClassification Gemma3ForSequenceClassification
        Gemma3Model Gemma3TextForSequenceClassification Gemma3nModel Gemma3nTextModel Gemma4AssistantForCausalLM
        Gemma4Model Gemma4TextModel Gemma4UnifiedAssistantForCausalLM Gemma4UnifiedForCausalLM Gemma4UnifiedModel
        Gemma4UnifiedTextModel GemmaForSequenceClassification GemmaModel GitModel Glm4ForSequenceClassification
        Glm4Model Glm4MoeLiteModel Glm4MoeModel GlmForSequenceClassification GlmModel GlmMoeDsaModel
        GotOcr2ForConditionalGeneration GotOcr2Model GptOssForSequenceClassification GptOssModel GraniteModel
        GraniteMoeHybridModel GraniteMoeModel GraniteMoeSWAModel GraniteMoeSharedModel GraniteSWAModel
        GteForSequenceClassification HYV3Model HYV4Model HeliumForCausalLM HeliumForSequenceClassification HeliumModel
        HrmTextModel HunYuanDenseV1ForSequenceClassification HunYuanDenseV1Model HunYuanMoEV1ForSequenceClassification
        HunYuanMoEV1Model HyperCLOVAXModel InklingTextModel Jais2Model JambaModel JetMoeForCausalLM
        JetMoeForSequenceClassification JetMoeModel JinaEmbeddingsV3ForSequenceClassification JinaEmbeddingsV3Model
        KimiLinearModel LagunaModel LayoutLMForSequenceClassification LayoutLMModel Lfm2Model Lfm2MoeModel
        Llama4TextModel LlamaForSequenceClassification LongcatFlashModel Mamba2Model MambaModel
        MarkupLMForSequenceClassification MellumModel MiMoV2FlashModel MiniCPM3ForSequenceClassification MiniCPM3Model
        MiniMaxForCausalLM MiniMaxForSequenceClassification MiniMaxM2Model MiniMaxM3VLForCausalLM MiniMaxM3VLTextModel
        MiniMaxModel Ministral3ForSequenceClassification Ministral3Model MinistralForCausalLM
        MinistralForSequenceClassification MinistralModel Mistral4ForSequenceClassification
        MistralForSequenceClassification MixtralForSequenceClassification MixtralModel MllamaModel
        MobileBertForSequenceClassification MobileBertModel ModernBertDecoderForCausalLM
        ModernBertDecoderForSequenceClassification ModernBertDecoderModel ModernVBertForSequenceClassification
        ModernVBertModel MoshiForCausalLM MoshiModel MusicgenMelodyModel MusicgenModel NanoChatForCausalLM NanoChatModel
        NemotronForSequenceClassification NemotronHModel NemotronModel NeoMMEModel NomicBertForSequenceClassification
        OPTForSequenceClassification OPTModel Olmo2ForSequenceClassification Olmo2Model Olmo3ForSequenceClassification
        Olmo3Model OlmoForSequenceClassification OlmoHybridModel OlmoModel OlmoeModel PersimmonForCausalLM
        PersimmonForSequenceClassification PersimmonModel Phi3ForSequenceClassification Phi3Model Phi4MultimodalModel
        PhiForSequenceClassification PhiModel PhimoeForCausalLM PhimoeForSequenceClassification PhimoeModel
        Qwen2ForSequenceClassification Qwen2MoeForSequenceClassification Qwen2MoeModel Qwen3ForSequenceClassification
        Qwen3Model Qwen3MoeForSequenceClassification Qwen3MoeModel Qwen3NextForSequenceClassification Qwen3NextModel
        Qwen3_5ForSequenceClassification Qwen3_5Model Qwen3_5MoeModel Qwen3_5MoeTextModel
        Qwen3_5TextForSequenceClassification Qwen3_5TextModel Qwen4ExpModel Qwen4ExpTextModel RecurrentGemmaForCausalLM
        RecurrentGemmaModel RoCBertForCausalLM RoCBertForSequenceClassification RoCBertModel RobertaForCausalLM
        RobertaPreLayerNormForCausalLM RobertaPreLayerNormForSequenceClassification RobertaPreLayerNormModel
        SeedOssForSequenceClassification SeedOssModel SmolLM3ForSequenceClassification SmolLM3Model SolarOpenForCausalLM
        SolarOpenModel StableLmForSequenceClassification StableLmModel Starcoder2ForSequenceClassification
        Starcoder2Model Tipsv2TextModel VaultGemmaModel XLMRobertaForCausalLM XLMRobertaXLForCausalLM
        XLMRobertaXLForSequenceClassification XLMRobertaXLModel XmodForCausalLM XmodForSequenceClassification XmodModel
        YoutuForCausalLM YoutuModel Zamba2ForSequenceClassification Zamba2Model ZambaForCausalLM
        ZambaForSequenceClassification ZambaModel ZayaForCausalLM ZayaModel xLSTMForCausalLM xLSTMModel
    """.split()
)
"""Models of texts that vLLM runs with transformers, or by converting one of its own to another kind."""

TRANSCRIBERS: Final = frozenset(
    """
        CohereAsrForConditionalGeneration FireRedASR2ForConditionalGeneration FunASRForConditionalGeneration
        Gemma3nForConditionalGeneration GlmAsrForConditionalGeneration GraniteSpeechForConditionalGeneration
        GraniteSpeechPlusForConditionalGeneration MoonshotKimiaForCausalLM MossTranscribeDiarizeForConditionalGeneration
        Qwen3ASRForConditionalGeneration Qwen3OmniMoeForConditionalGeneration VoxtralForConditionalGeneration
        WhisperForConditionalGeneration
    """.split()
)
"""They transcribe speech. Those that are not in `MULTIMODAL_CHATS` do nothing else."""

PoolingKind = Literal["classification", "embedding", "late interaction", "reward", "token classification"]

POOLING: Final[dict[PoolingKind, frozenset[str]]] = {
    "classification": frozenset(
        """
            BertForSequenceClassification GPT2ForSequenceClassification GteNewForSequenceClassification
            JambaForSequenceClassification JinaVLForRanking LlamaBidirectionalForSequenceClassification
            LlamaNemotronVLForSequenceClassification ModernBertForSequenceClassification
            RobertaForSequenceClassification XLMRobertaForSequenceClassification
        """.split()
    ),
    "embedding": frozenset(
        """
            BertForMaskedLM BertModel BertSpladeSparseEmbeddingModel BgeM3EmbeddingModel CLIPModel
            DeepseekV3BidirectionalModel EmbeddingGemma2Model Gemma2Model Gemma3TextModel GteModel GteNewModel
            JinaEmbeddingsV5Model LlamaBidirectionalModel LlamaModel LlamaNemotronVLModel MistralModel ModernBertModel
            NomicBertModel Qwen2Model RobertaForMaskedLM RobertaModel SiglipModel Terratorch
            VoyageQwen3BidirectionalEmbedModel XLMRobertaModel
        """.split()
    ),
    "late interaction": frozenset(
        """
            ColBERTJinaRobertaModel ColBERTLfm2Model ColBERTModernBertModel ColModernVBertForRetrieval
            ColPaliForRetrieval ColQwen3 ColQwen3_5 HF_ColBERT JinaForRanking OpsColQwen3Model Qwen3VLNemotronEmbedModel
        """.split()
    ),
    "reward": frozenset(
        """
            InternLM2ForRewardModel Qwen2ForProcessRewardModel Qwen2ForRewardModel
        """.split()
    ),
    "token classification": frozenset(
        """
            BertForTokenClassification ClefOmniForJointSchema ModernBertForTokenClassification
            OpenAIPrivacyFilterForTokenClassification Qwen3ASRForcedAlignerForTokenClassification
            RobertaForTokenClassification XLMRobertaForTokenClassification
        """.split()
    ),
}
"""They compute vectors or scores of texts, and do not generate text. vLLM converts other models to some of these kinds,
by the end of their name."""

CONFIG_TYPES: Final = frozenset(
    """
        EvollaModel RefinedWeb RefinedWebModel afmoe aimv2 aimv2_text_model aimv2_vision_model albert align
        align_text_model align_vision_model altclip altclip_text_model altclip_vision_model apertus arcee aria aria_text
        audio-spectrogram-transformer audioflamingo3 audioflamingo3_encoder autoformer axk1 axk2 aya_vision bagel
        bailing_moe_v3_vl bamba bark bart beit bert bert-generation big_bird bigbird_pegasus biogpt bit bitnet
        blenderbot blenderbot-small blip blip-2 blip_2_qformer blip_2_vision_model blip_text_model blip_vision_model
        bloom blt blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher bridgetower
        bridgetower_text_model bridgetower_vision_model bros camembert canary canary_decoder canine chameleon
        chameleon_vqgan chatglm chinese_clip chinese_clip_text_model chinese_clip_vision_model chmv2 clap
        clap_audio_model clap_text_model clip clip_text_model clip_vision_model clipseg clipseg_text_model
        clipseg_vision_model clvp clvp_decoder clvp_encoder codegen cohere cohere2 cohere2_moe cohere2_vision cohere_asr
        cohere_compass cohere_compass_text cohere_compass_vision colmodernvbert colpali colqwen2 colqwen3
        conditional_detr convbert convnext convnextv2 cosmos3_edge cosmos3_edge_text cosmos3_edge_vision cosmos3_omni
        cpmant csm csm_depth_decoder_model ctrl cvt cwm d_fine dab-detr dac data2vec-audio data2vec-text data2vec-vision
        dbrx deberta deberta-v2 decision_transformer deepseek_ocr2 deepseek_ocr2_encoder deepseek_ocr2_sam_vision_model
        deepseek_ocr2_text deepseek_ocr2_vision deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 deepseek_v41
        deepseek_vl deepseek_vl_hybrid deepseek_vl_v2 deformable_detr deimv2 deit depth_anything depth_pro detr dia
        dia_decoder dia_encoder diffllama diffusion_gemma diffusion_gemma_text dinat dinov2 dinov2_with_registers
        dinov3_convnext dinov3_vit distilbert doge donut-swin dots1 dots3_note dpr dpt eagle edgetam edgetam_video
        edgetam_vision_model efficientloftr efficientnet electra embedding_gemma2 embedding_gemma2_text emu3
        emu3_text_model emu3_vqgan encodec encoder-decoder eomt eomt_dinov3 ernie ernie4_5 ernie4_5_moe ernie4_5_vl_moe
        ernie4_5_vl_moe_text ernie4_5_vl_moe_vision esm esmc esmfold2 eurobert evolla exaone4 exaone4_5 exaone4_5_vision
        exaone_moe falcon falcon_h1 falcon_mamba fast_vlm fastspeech2_conformer fastspeech2_conformer_hifigan
        fastspeech2_conformer_with_hifigan flaubert flava flava_image_model flava_multimodal_model flava_text_model
        flex_olmo florence2 florence_vision fnet focalnet fsmt fun_asr_nano fun_asr_nano_encoder funaudiochat funnel
        fuyu gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_audio gemma3n_text gemma3n_vision gemma4 gemma4_assistant
        gemma4_audio gemma4_text gemma4_unified gemma4_unified_assistant gemma4_unified_audio gemma4_unified_text
        gemma4_unified_vision gemma4_vision git git_vision_model glm glm4 glm46v glm4_moe glm4_moe_lite glm4v glm4v_moe
        glm4v_moe_text glm4v_moe_vision glm4v_text glm4v_vision glm5_next glm5_next_text glm5_next_vision glm_image
        glm_image_text glm_image_vision glm_image_vqmodel glm_moe_dsa glm_ocr glm_ocr_text glm_ocr_vision glmasr
        glmasr_encoder glmga glpn got_ocr2 gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj
        granite granite4_vision granite4_vision_text granite_speech granite_speech5_ctc granite_speech5_encoder
        granite_speech_encoder granite_speech_plus granite_speech_plus_encoder granite_swa granitemoe granitemoe_swa
        granitemoehybrid granitemoeshared grounding-dino groupvit groupvit_text_model groupvit_vision_model gte helium
        hgnet_v2 hiera higgs_audio_v2 higgs_audio_v2_tokenizer hrm_text hubert hunyuan_v1_dense hunyuan_v1_moe
        hunyuan_vl hunyuan_vl_text hunyuan_vl_vision hy_v3 hy_v4 hyperclovax hyperclovax_vision_v2 ibert idefics
        idefics2 idefics2_perceiver idefics2_vision idefics3 idefics3_vision idefics_perciever idefics_vision ijepa
        imagegpt informer inkling_audio inkling_mm_model inkling_model inkling_text inkling_vision instructblip
        instructblip_qformer instructblip_vision_model instructblipvideo instructblipvideo_qformer
        instructblipvideo_vision_model internvl internvl_vision isaac jais2 jamba janus janus_vision_model janus_vqgan
        jetmoe jina_embeddings_v3 k3_dspark kimi_k2 kimi_k25 kimi_k25_vision kimi_k3 kimi_linear kimi_vl kosmos-2
        kosmos-2.5 kosmos_2_5_text_model kosmos_2_5_vision_model kosmos_2_text_model kosmos_2_vision_model
        kyutai_speech_to_text laguna lasr_ctc lasr_encoder layoutlm layoutlmv2 layoutlmv3 layoutxlm led levit lfm2
        lfm2_moe lfm2_vl lightglue lighton_ocr lilt llama llama4 llama4_text llama4_vision_model llava llava_next
        llava_next_video llava_onevision longcat_flash longformer longt5 luke lw_detr lw_detr_vit lxmert m2m_100 mamba
        mamba2 marian markuplm mask2former maskformer maskformer-swin mbart medusa megatron-bert mellum metaclip_2
        metaclip_2_text_model metaclip_2_vision_model mgp-str midashenglm mimi mimo_v2_flash minicpm3 minicpmv4_6
        minicpmv4_6_vision minicpmv4_7 minicpmv4_7_vision minimax minimax_m2 minimax_m3_mtp minimax_m3_vl
        minimax_m3_vl_text minimax_m3_vl_vision ministral ministral3 mistral mistral3 mistral4 mixtral mlcd
        mlcd_vision_model mllama mllama_text_model mllama_vision_model mlp_speculator mm-grounding-dino mobilebert
        mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2 modernbert modernbert-decoder modernvbert moondream3 moonshine
        moonshine_streaming moonshine_streaming_encoder moshi moshi_depth moss_transcribe_diarize mpnet mpt mra mt5
        muse_glimmer muse_glimmer_assistant muse_glimmer_text muse_glimmer_vision musicflamingo musicgen
        musicgen_decoder musicgen_melody musicgen_melody_decoder mvp nanochat nemotron nemotron3_5_asr
        nemotron3_diarization nemotron3_diarization_audio nemotron_asr_streaming nemotron_asr_streaming_encoder
        nemotron_h nemotron_h_omni neomme neucodec nllb-moe nomic_bert nougat nystromformer olmo olmo2 olmo3 olmo_hybrid
        olmoe omdet-turbo oneformer openai-gpt openai_privacy_filter openvla ops_colqwen3 opt ovis ovis2 owlv2
        owlv2_text_model owlv2_vision_model owlvit owlvit_text_model owlvit_vision_model paddleocr_vl paddleocr_vl_text
        paddleocr_vl_vision paligemma parakeet_ctc parakeet_encoder parakeet_rnnt parakeet_tdt patchtsmixer patchtst
        pe_audio pe_audio_encoder pe_audio_video pe_audio_video_encoder pe_video pe_video_encoder pegasus pegasus_x
        perceiver perception_lm persimmon phi phi3 phi4_multimodal phi4_multimodal_audio phi4_multimodal_vision phimoe
        pi0 pix2struct pix2struct_text_model pix2struct_vision_model pixio pixtral plbart poolformer pop2piano
        pp_chart2table pp_doclayout_v2 pp_doclayout_v3 pp_formulanet pp_lcnet pp_lcnet_v3 pp_lcnet_v4
        pp_ocrv5_mobile_det pp_ocrv5_mobile_rec pp_ocrv5_server_det pp_ocrv5_server_rec pp_ocrv6_medium_det
        pp_ocrv6_small_det pp_ocrv6_small_rec pp_ocrv6_tiny_rec prompt_depth_anything prophetnet pvt pvt_v2 qianfan_ocr
        qianfan_ocr_vision qwen2 qwen2_5_omni qwen2_5_omni_audio_encoder qwen2_5_omni_bigvgan qwen2_5_omni_dit
        qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_omni_thinker qwen2_5_omni_token2wav qwen2_5_omni_vision_encoder
        qwen2_5_vl qwen2_5_vl_text qwen2_5_vl_vision qwen2_audio qwen2_audio_encoder qwen2_moe qwen2_vl qwen2_vl_text
        qwen2_vl_vision qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_moe_vision qwen3_5_text qwen3_5_vision
        qwen3_asr qwen3_asr_encoder qwen3_moe qwen3_next qwen3_omni_moe qwen3_omni_moe_audio_encoder
        qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text qwen3_omni_moe_text qwen3_omni_moe_thinker
        qwen3_omni_moe_vision_encoder qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_moe_vision
        qwen3_vl_nemotron_embed qwen3_vl_text qwen3_vl_vision qwen4_exp qwen4_exp_text qwen4_exp_vision radio rag
        recurrent_gemma reformer regnet rembert resnet rf_detr rf_detr_dinov2 roberta roberta-prelayernorm roc_bert
        roformer rt_detr rt_detr_resnet rt_detr_v2 rwkv sam sam2 sam2_hiera_det_model sam2_video sam2_vision_model sam3
        sam3_detr_decoder sam3_detr_encoder sam3_geometry_encoder sam3_lite_text sam3_lite_text_detr_decoder
        sam3_lite_text_detr_encoder sam3_lite_text_geometry_encoder sam3_lite_text_mask_decoder
        sam3_lite_text_text_model sam3_mask_decoder sam3_tracker sam3_tracker_video sam3_video sam3_vision_model
        sam3_vit_model sam_hq sam_hq_vision_model sam_vision_model sapiens2 sapiens2_head seamless_m4t seamless_m4t_v2
        seed_oss segformer seggpt sew sew-d shieldgemma2 siglip siglip2 siglip2_text_model siglip2_vision_model
        siglip_text_model siglip_vision_model slanet slanext smollm3 smolvlm smolvlm_vision solar_open speculators
        speech-encoder-decoder speech_to_text speecht5 speecht5_hifigan splinter squeezebert stablelm starcoder2
        step3_text step3_vl step3p5 step3p5_vision step3p7 superglue superpoint swiftformer swin swin2sr swinv2
        switch_transformers t5 t5_gemma_module t5gemma t5gemma2 t5gemma2_decoder t5gemma2_encoder t5gemma2_text
        table-transformer tapas textnet time_series_transformer timesfm timesfm2_5 timesformer timm_backbone
        timm_wrapper tipsv2 tipsv2_dpt tipsv2_text_model tipsv2_vision_model trocr tvp udop ultravox umt5 unispeech
        unispeech-sat univnet unlimited-ocr unlimited_ocr upernet uvdoc uvdoc_backbone vaultgemma vibevoice
        vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder vibevoice_acoustic_tokenizer_encoder
        vibevoice_asr video_llama_3 video_llama_3_vision video_llava videomae videomt videoprism videoprism_text_model
        videoprism_vision_model vilt vipllava vision-encoder-decoder vision-text-dual-encoder visual_bert vit vit_mae
        vit_msn vitdet vitmatte vitpose vitpose_backbone vits vivit vjepa2 voxtral voxtral_encoder voxtral_realtime
        voxtral_realtime_encoder voxtral_realtime_text wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm whisper xclip
        xclip_text_model xclip_vision_model xcodec xcodec2 xglm xlm xlm-roberta xlm-roberta-xl xlnet xlstm xmod yolos
        yoso youtu zamba zamba2 zaya zoedepth
    """.split()
)
"""Values of `model_type` in a config.json that transformers or vLLM know: others need code of the repository."""

TEXT_TYPES: Final = frozenset(
    """
        afmoe albert apertus arcee aria_text axk1 axk2 bamba bart bert bert-generation big_bird bigbird_pegasus biogpt
        bitnet blenderbot blenderbot-small bloom blt camembert clip_text_model codegen cohere cohere2 cohere2_moe
        cohere_compass_text convbert cpmant ctrl cwm data2vec-text dbrx deberta deberta-v2 deepseek_v2 deepseek_v3
        deepseek_v32 deepseek_v4 diffllama distilbert doge dots1 electra emu3 ernie ernie4_5 ernie4_5_moe esm esmc
        eurobert exaone4 exaone_moe falcon falcon_h1 falcon_mamba flaubert flex_olmo fnet funnel fuyu gemma gemma2
        gemma3 gemma3_text gemma3n gemma3n_text gemma4 gemma4_assistant gemma4_text gemma4_unified
        gemma4_unified_assistant gemma4_unified_text git glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa got_ocr2 gpt-sw3
        gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj granite granite_swa granitemoe granitemoe_swa
        granitemoehybrid granitemoeshared gte helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4 hyperclovax
        ibert inkling_text jais2 jamba jetmoe jina_embeddings_v3 kimi_linear laguna layoutlm lfm2 lfm2_moe llama llama4
        llama4_text longcat_flash longformer luke mamba mamba2 marian mbart megatron-bert mellum mimo_v2_flash minicpm3
        minimax minimax_m2 minimax_m3_vl_text ministral ministral3 mistral mixtral mllama mobilebert modernbert
        modernbert-decoder modernvbert moshi mpnet mpt mra mt5 musicgen musicgen_melody mvp nanochat nemotron nemotron_h
        neomme nomic_bert nystromformer olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt opt pegasus perceiver persimmon
        phi phi3 phi4_multimodal phimoe plbart prophetnet qwen2 qwen2_moe qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text
        qwen3_5_text qwen3_moe qwen3_next qwen4_exp qwen4_exp_text recurrent_gemma reformer rembert roberta
        roberta-prelayernorm roc_bert roformer rwkv seed_oss smollm3 solar_open squeezebert stablelm starcoder2 t5
        t5gemma tapas tipsv2_text_model trocr umt5 vaultgemma whisper xglm xlm xlm-roberta xlm-roberta-xl xlnet xlstm
        xmod yoso youtu zamba zamba2 zaya
    """.split()
)
"""Values of `model_type` of models of texts that transformers knows."""

TOOL_PARSERS: Final = frozenset(
    """
        apertus cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 dots
        ernie45 functiongemma gemma4 gigachat3 glm45 glm47 granite granite-20b-fc granite4 hermes hf hunyuan_a13b hy_v3
        hy_v4 inkling internlm jamba k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3_json llama4_json llama4_pythonic
        longcat mimo minicpm5 minimax_m2 minimax_m3 mistral muse_glimmer olmo3 openai phi4_mini_json plamo3 poolside_v1
        pythonic qwen3_coder qwen3_json qwen3_xml seed_oss step3 step3p5 xlam
    """.split()
)

REASONING_PARSERS: Final = frozenset(
    """
        cohere_command3 cohere_command4 deepseek_r1 deepseek_v3 deepseek_v4 deepseek_v41 ernie45 gemma4 glm45 glm47
        granite granite_thinking_parser hf holo2 hunyuan_a13b hy_v3 hy_v4 inkling k2_horizon kimi_k2 kimi_k3 ling3 mimo
        minicpmv minimax_m2 minimax_m2_append_think minimax_m3 mistral muse_glimmer nemotron_v3 olmo3 openai_gptoss
        plamo3 poolside_v1 qwen3 seed_oss step3 step3p5
    """.split()
)


class EngineArguments(TypedDict, total=False):
    """The fields of vLLM's `AsyncEngineArgs`. A `JsonValue` has several types, or one that is not of JSON."""

    model: str
    enable_return_routed_experts: bool
    return_sampling_mask: bool
    model_weights: str
    served_model_name: JsonValue
    tokenizer: str | None
    hf_config_path: str | None
    runner: Literal["auto", "generate", "pooling", "draft"]
    convert: Literal["auto", "none", "embed", "classify"]
    skip_tokenizer_init: bool
    enable_prompt_embeds: bool
    tokenizer_mode: str
    trust_remote_code: bool
    allowed_local_media_path: str
    allowed_media_domains: list[JsonValue] | None
    download_dir: str | None
    safetensors_load_strategy: Literal["lazy", "eager", "prefetch", "torchao"] | None
    safetensors_prefetch_num_threads: int
    safetensors_prefetch_block_size: int
    load_format: str
    config_format: str
    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"]
    kv_cache_dtype: Literal[
        "auto",
        "float16",
        "bfloat16",
        "fp8",
        "fp8_e4m3",
        "fp8_e5m2",
        "fp8_inc",
        "fp8_ds_mla",
        "nvfp4_ds_mla",
        "turboquant_k8v4",
        "turboquant_4bit_nc",
        "turboquant_k3v4_nc",
        "turboquant_3bit_nc",
        "ultraquant_4bit",
        "int4_per_token_head",
        "int8_per_token_head",
        "fp8_per_token_head",
        "nvfp4",
        "nvfp4_4over6",
    ]
    seed: int
    max_model_len: int
    cudagraph_capture_sizes: list[JsonValue] | None
    max_cudagraph_capture_size: int | None
    ir_op_priority: JsonValue
    distributed_executor_backend: JsonValue
    pipeline_parallel_size: int
    master_addr: str
    master_port: int
    nnodes: int
    node_rank: int
    distributed_timeout_seconds: int | None
    cpu_distributed_timeout_seconds: int | None
    numa_bind: bool
    numa_bind_nodes: list[JsonValue] | None
    numa_bind_cpus: list[JsonValue] | None
    device_ids: list[JsonValue] | None
    tensor_parallel_size: int
    prefill_context_parallel_size: int
    decode_context_parallel_size: int
    dcp_comm_backend: Literal["ag_rs", "a2a"] | None
    dcp_q_replicate: bool | None
    dcp_kv_cache_interleave_size: int
    cp_kv_cache_interleave_size: int | None
    data_parallel_size: int
    data_parallel_rank: int | None
    data_parallel_start_rank: int | None
    data_parallel_size_local: int | None
    data_parallel_address: str | None
    data_parallel_rpc_port: int | None
    data_parallel_hybrid_lb: bool
    data_parallel_external_lb: bool
    data_parallel_multi_port_external_lb: bool
    data_parallel_backend: Literal["ray", "mp"]
    enable_hc_sp: bool
    enable_expert_parallel: bool
    enable_batch_sharded_sampling: bool | None
    enable_ep_weight_filter: bool
    moe_backend: Literal[
        "auto",
        "triton",
        "batched_triton",
        "deep_gemm",
        "deep_gemm_mega_moe",
        "cutlass",
        "flashinfer_trtllm",
        "flashinfer_cutlass",
        "flashinfer_cutedsl",
        "flashinfer_moe_ep_cutedsl",
        "flashinfer_b12x",
        "b12x",
        "flashinfer_moe_ep_mega_deep_gemm",
        "marlin",
        "humming",
        "triton_unfused",
        "aiter",
        "aiter_mega_moe",
        "aiter_triton_mxfp4_bf16",
        "flydsl",
        "hpc",
        "emulation",
        "rdna3",
    ]
    linear_backend: Literal[
        "auto",
        "cutlass",
        "flashinfer_cutlass",
        "flashinfer_cutedsl",
        "flashinfer_trtllm",
        "flashinfer_cudnn",
        "flashinfer_b12x",
        "b12x",
        "marlin",
        "humming",
        "triton",
        "deep_gemm",
        "torch",
        "aiter",
        "machete",
        "fbgemm",
        "conch",
        "exllama",
        "emulation",
        "xpu",
        "xpu_woq",
    ]
    sparse_indexer_topk_backend: Literal[
        "auto", "deep_select", "cooperative", "persistent", "per_row", "flashinfer", "torch", "aiter"
    ]
    all2all_backend: Literal[
        "naive",
        "pplx",
        "deepep_high_throughput",
        "deepep_low_latency",
        "deepep_v2",
        "mori_high_throughput",
        "mori_low_latency",
        "moonep",
        "nixl_ep",
        "allgather_reducescatter",
        "flashinfer_all2allv",
        "flashinfer_nvlink_two_sided",
        "flashinfer_nvlink_one_sided",
        "passthrough",
    ]
    enable_elastic_ep: bool
    elastic_ep_max_dp_size: int
    enable_dbo: bool
    ubatch_size: int
    dbo_decode_token_threshold: int
    dp_sync_interval: int
    dbo_prefill_token_threshold: int
    disable_nccl_for_dp_synchronization: bool | None
    eplb_config: JsonValue
    enable_eplb: bool
    expert_placement_strategy: Literal["linear", "round_robin"]
    _api_process_count: int
    _api_process_rank: int
    max_parallel_loading_workers: int | None
    block_size: int | None
    enable_prefix_caching: bool | None
    prefix_caching_hash_algo: Literal["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]
    prefix_cache_retention_interval: int | None
    disable_sliding_window: bool
    disable_cascade_attn: bool | None
    offload_backend: str
    cpu_offload_gb: float
    cpu_offload_params: list[JsonValue]
    offload_group_size: int
    offload_num_in_group: int
    offload_prefetch_step: int
    offload_params: list[JsonValue]
    gpu_memory_utilization: float
    kv_cache_memory_bytes: int | None
    max_num_batched_tokens: int | None
    max_num_scheduled_tokens: int | None
    long_prefill_token_threshold: int
    long_prefill_token_threshold_adaptive: bool
    max_num_seqs: int | None
    max_num_active_seqs: int | None
    max_num_queued_reqs: int | None
    max_num_queued_tokens: int | None
    max_logprobs: int
    logprobs_mode: Literal["raw_logits", "raw_logprobs", "processed_logits", "processed_logprobs"]
    use_fp64_gumbel: bool
    enable_trace_replay: bool
    disable_log_stats: bool
    aggregate_engine_logging: bool
    revision: str | None
    code_revision: str | None
    hf_token: JsonValue
    hf_overrides: JsonValue
    model_class_overrides: dict[str, JsonValue]
    tokenizer_revision: str | None
    quantization: str | None
    quantization_config: JsonValue
    allow_deprecated_quantization: bool
    enforce_eager: bool
    disable_custom_all_reduce: bool
    enable_shm_tensor_arena: bool
    language_model_only: bool
    limit_mm_per_prompt: dict[str, JsonValue]
    enable_mm_embeds: bool
    interleave_mm_strings: bool
    media_io_kwargs: dict[str, JsonValue]
    mm_processor_kwargs: dict[str, JsonValue] | None
    mm_processor_cache_gb: float
    mm_processor_cache_type: Literal["shm", "lru"] | None
    mm_hasher_algorithm: Literal["blake3", "sha256", "sha512"]
    mm_shm_cache_max_object_size_mb: int
    mm_encoder_only: bool
    mm_encoder_tp_mode: Literal["weights", "data"]
    mm_encoder_attn_backend: JsonValue
    mm_encoder_attn_dtype: str | None
    mm_encoder_fp8_scale_path: str | None
    mm_encoder_fp8_scale_save_path: str | None
    mm_encoder_fp8_scale_save_margin: float
    io_processor_plugin: str | None
    renderer_num_workers: int
    skip_mm_profiling: bool
    video_pruning_rate: float | None
    video_pruning_method: str
    mm_tensor_ipc: Literal["direct_rpc", "torch_shm"]
    mm_processor_device: str
    mm_ipc_gpu_memory_gb: float
    mm_device_do_normalize: bool | None
    enable_lora: bool
    max_loras: int
    max_lora_rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512]
    default_mm_loras: dict[str, JsonValue] | None
    fully_sharded_loras: bool
    max_cpu_loras: int | None
    lora_dtype: JsonValue
    lora_target_modules: list[JsonValue] | None
    enable_tower_connector_lora: bool
    specialize_active_lora: bool
    enable_mixed_moe_lora_format: bool
    enable_moe_shared_loras: bool
    max_lora_cls_labels: int | None
    ray_workers_use_nsight: bool
    num_gpu_blocks_override: int | None
    model_loader_extra_config: dict[str, JsonValue]
    ignore_patterns: JsonValue
    enable_chunked_prefill: bool | None
    disable_chunked_mm_input: bool
    scheduler_reserve_full_isl: bool
    prefill_schedule_interval: int
    watermark: float
    disable_hybrid_kv_cache_manager: bool | None
    structured_outputs_config: JsonValue
    aux_output_config: JsonValue
    reasoning_parser: str
    reasoning_parser_plugin: str | None
    speculative_config: dict[str, JsonValue] | None
    spec_method: str | None
    spec_model: str | None
    spec_tokens: int | None
    watermark_config: dict[str, JsonValue] | None
    diffusion_config: dict[str, JsonValue] | None
    show_hidden_metrics_for_version: str | None
    otlp_traces_endpoint: str | None
    collect_detailed_traces: list[JsonValue] | None
    per_request_spec_decode_metrics: Literal["none", "summary", "detailed"]
    kv_cache_metrics: bool
    kv_cache_metrics_sample: float
    custom_histogram_buckets: dict[str, JsonValue] | None
    cudagraph_metrics: bool
    enable_layerwise_nvtx_tracing: bool
    enable_mfu_metrics: bool
    enable_logging_iteration_details: bool
    jit_monitor_mode: Literal["warn", "error"]
    jit_monitor_verbose: bool
    enable_mm_processor_stats: bool
    scheduling_policy: Literal["fcfs", "priority"]
    scheduler_cls: JsonValue
    pooler_config: JsonValue
    compilation_config: JsonValue
    attention_config: JsonValue
    engram_config: JsonValue
    mamba_config: JsonValue
    kernel_config: JsonValue
    enable_flashinfer_autotune: bool
    worker_cls: str
    worker_extension_cls: str
    profiler_config: JsonValue
    logging_config: JsonValue
    log_level: Literal["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET"] | None
    log_config_file: str | None
    kv_transfer_config: JsonValue
    kv_events_config: JsonValue
    ec_transfer_config: JsonValue
    ec_manager_config: JsonValue
    reasoning_config: JsonValue
    generation_config: str
    enable_sleep_mode: bool
    sleep_mode_offload_cudagraph: bool
    sleep_preserve_parameter_names: list[JsonValue]
    enable_cumem_allocator: bool
    enable_nccl_comm_suspend: bool
    override_generation_config: dict[str, JsonValue]
    model_impl: str
    attention_backend: JsonValue
    kv_cache_dtype_skip_layers: list[JsonValue]
    mamba_cache_dtype: Literal["auto", "float32", "float16", "bfloat16"]
    mamba_ssm_cache_dtype: Literal["auto", "float32", "float16", "bfloat16"]
    mamba_block_size: int | None
    prefix_match_unit: int | None
    mamba_cache_mode: Literal["align", "none"]
    enable_mamba_shared_prefix_checkpoint: bool
    replayssm_buffer_len: int
    use_replayssm: bool
    mamba_backend: JsonValue
    mamba_ssu_algorithm: Literal["auto", "simple", "vertical", "horizontal"] | None
    enable_mamba_cache_stochastic_rounding: bool
    mamba_cache_philox_rounds: int
    additional_config: dict[str, JsonValue]
    use_tqdm_on_load: bool
    pt_load_map_location: JsonValue
    logits_processors: list[JsonValue] | None
    async_scheduling: bool | None
    stream_interval: int
    kv_sharing_fast_prefill: bool
    swa_bounded_replay: bool
    optimization_level: JsonValue
    performance_mode: Literal["balanced", "interactivity", "throughput"]
    fault_tolerance_config: JsonValue
    enable_fault_tolerance: bool
    kv_offloading_size: float | None
    kv_offloading_backend: Literal["native", "lmcache"]
    tokens_only: bool
    shutdown_timeout: int
    weight_transfer_config: JsonValue
    fail_on_environ_validation: bool
    gdn_prefill_backend: Literal["flashinfer", "triton", "cutedsl", "aiter_flydsl"] | None
    kda_prefill_backend: Literal["auto", "triton", "flashkda", "flashinfer", "fused"] | None
    kda_decode_backend: Literal["auto", "native", "flashinfer", "triton"] | None
    enable_log_requests: bool
