import { defineConfig } from "vite";

export default defineConfig({
  base: "./", // The gateway may be behind a path prefix that it does not know.
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../cornserve/gateway/console/static",
    emptyOutDir: true,
    assetsInlineLimit: 0, // The Content-Security-Policy refuses inline scripts.
    modulePreload: false,
    target: "es2022",
    license: { fileName: "licenses.md" },
  },
  server: {
    // `npm run dev` shows the apps of a running instance.
    proxy: {
      "^/(session|admin|v1)": {
        target: "http://127.0.0.1:8000",
        rewrite: (path) => `/console${path}`,
      },
    },
  },
});
