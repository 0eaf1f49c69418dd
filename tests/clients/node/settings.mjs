// The app that the programs call.
export const BASE_URL = `${process.env.CORNSERVE_URL}/v1`;
export const MODEL = process.env.CORNSERVE_APP;
export const QUESTION = "Name a color. Answer with one word.";
