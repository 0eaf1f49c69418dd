// The official OpenAI client for Node: a chat, a stream, and a response.
import OpenAI from "openai";
import { BASE_URL, MODEL, QUESTION } from "./settings.mjs";

const client = new OpenAI({ baseURL: BASE_URL, apiKey: "none" });
const messages = [{ role: "user", content: QUESTION }];
const chat = await client.chat.completions.create({ model: MODEL, messages });
console.log(chat.choices[0].message.content);
let text = "";
for await (const chunk of await client.chat.completions.create({ model: MODEL, messages, stream: true })) {
  text += chunk.choices[0].delta.content ?? "";
}
console.log(text);
console.log((await client.responses.create({ model: MODEL, input: QUESTION })).output_text);
