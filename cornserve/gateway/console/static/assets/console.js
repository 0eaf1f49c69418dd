const form = document.getElementById("sign-in");
const message = document.getElementById("message");
const table = document.getElementById("apps");

async function call(path, method = "GET", body = undefined) {
  const headers = method === "GET" ? {} : { "x-cornserve-console": "1" };
  const response = await fetch(path, { method, headers, body });
  const content = response.status === 204 ? null : await response.json();
  if (!response.ok) throw new Error(content.error.message);
  return content;
}

async function show() {
  const session = await call("session");
  form.hidden = session.role !== null;
  table.hidden = session.role === null;
  if (session.role === null) return;
  const { apps } = await call("admin/v1/apps");
  const rows = apps.map((app) => {
    const row = document.createElement("tr");
    for (const text of [app.name, app.status.phase]) row.insertCell().textContent = text;
    return row;
  });
  table.tBodies[0].replaceChildren(...rows);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = document.getElementById("token").value;
  try {
    await call("session", "POST", JSON.stringify({ token }));
    message.textContent = "";
    await show();
  } catch (error) {
    message.textContent = error.message;
  }
});

show().catch((error) => {
  message.textContent = error.message;
});
