import { useCallback, useEffect, useState } from "preact/hooks";
import { get, messageOf, send, setSignedOutListener } from "./api/client";
import type { Session } from "./api/types";
import { SchemeSelect } from "./components/scheme";
import { Playground } from "./playground/playground";
import { href, type Route, useRoute } from "./routes";
import { SessionContext } from "./session";
import { AppView } from "./views/app";
import { DemoView } from "./views/demo";
import { Deploy } from "./views/deploy";
import { LogsView } from "./views/logs";
import { OverviewView } from "./views/overview";
import { RequestsView } from "./views/requests";
import { SignIn } from "./views/sign_in";
import { TimelineView } from "./views/timeline";

/** Lets all tabs of the browser read the session again after one of them has signed in or out. */
const sessionChanges = new BroadcastChannel("cornserve session");

/** The page: the sign-in, or the navigation and the view that the address names. */
export function Console() {
  const [session, setSession] = useState<Session | null>(null);
  const [error, setError] = useState("");
  const route = useRoute();
  const read = useCallback(() => {
    get<Session>("session").then(
      (next) => {
        setSession(next);
        setError("");
      },
      (problem) => setError(messageOf(problem)),
    );
  }, []);
  useEffect(() => {
    setSignedOutListener(read);
    sessionChanges.onmessage = read;
    read();
  }, [read]);
  function change() {
    sessionChanges.postMessage(null);
    read();
  }

  if (session === null) {
    return error ? (
      <main class="page">
        <h1>Cornserve</h1>
        <p role="alert" class="error">
          {error}
        </p>
        <button type="button" onClick={read}>
          Try again
        </button>
      </main>
    ) : null;
  }
  if (session.role === null) return <SignIn onSignedIn={change} />;
  return (
    <SessionContext.Provider value={session}>
      <button type="button" class="skip" onClick={() => document.getElementById("content")?.focus()}>
        Skip to the content
      </button>
      <Header session={session} route={route} onSignedOut={change} />
      <main class="page" id="content" tabIndex={-1}>
        <View route={route} />
      </main>
    </SessionContext.Provider>
  );
}

function View({ route }: { route: Route }) {
  switch (route.view) {
    case "overview":
      return <OverviewView />;
    case "app":
      return <AppView key={route.name} name={route.name} />;
    case "logs":
      return <LogsView key={route.name} name={route.name} />;
    case "requests":
      return <RequestsView key={route.app} app={route.app} />;
    case "request":
      return <TimelineView key={route.id} id={route.id} />;
    case "playground":
      return <Playground key={route.app} app={route.app} />;
    case "deploy":
      return <Deploy />;
    case "demo":
      return <DemoView />;
    case "unknown":
      return (
        <>
          <h1>Unknown address</h1>
          <p>
            <a href={href({ view: "overview" })}>Overview</a>
          </p>
        </>
      );
  }
}

function Header({ session, route, onSignedOut }: { session: Session; route: Route; onSignedOut: () => void }) {
  const isAdmin = session.role === "admin";
  const links: [string, Route][] = [
    ["Overview", { view: "overview" }],
    ["Requests", { view: "requests", app: null }],
    ...(isAdmin
      ? ([
          ["Playground", { view: "playground", app: null }],
          ["Deploy", { view: "deploy" }],
        ] as [string, Route][])
      : []),
  ];
  return (
    <header class="bar">
      <span class="brand">Cornserve</span>
      <nav aria-label="Views">
        {links.map(([label, target]) => (
          <a key={label} href={href(target)} aria-current={target.view === route.view ? "page" : undefined}>
            {label}
          </a>
        ))}
      </nav>
      <span class="grow" />
      {!isAdmin && <span class="tag">read only</span>}
      {session.version && <span class="quiet">{session.version}</span>}
      <SchemeSelect />
      {session.needs_token && (
        <button type="button" onClick={() => send("DELETE", "session").then(onSignedOut, onSignedOut)}>
          Sign out
        </button>
      )}
    </header>
  );
}
