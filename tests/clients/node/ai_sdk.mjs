// Vercel's AI SDK: a text, a stream and an object, with the providers for OpenAI (responses) and for compatible servers.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, Output, streamText } from "ai";
import { BASE_URL, MODEL, QUESTION } from "./settings.mjs";

const compatible = createOpenAICompatible({
  name: "cornserve", baseURL: BASE_URL, apiKey: "none", supportsStructuredOutputs: true,
});
for (const model of [createOpenAI({ baseURL: BASE_URL, apiKey: "none" })(MODEL), compatible(MODEL)]) {
  console.log((await generateText({ model, prompt: QUESTION })).text);
  let text = "";
  for await (const part of streamText({ model, prompt: QUESTION }).textStream) text += part;
  console.log(text);
  const schema = jsonSchema({
    type: "object", properties: { color: { enum: ["red", "blue"] } }, required: ["color"], additionalProperties: false,
  });
  const { output } = await generateText({ model, prompt: QUESTION, output: Output.object({ schema }) });
  if (!["red", "blue"].includes(output.color)) throw new Error(JSON.stringify(output));
  console.log(output);
}
