import { useEffect, useState } from "preact/hooks";

/** The view that the part of the address after `#` names. */
export type Route =
  | { view: "overview" }
  | { view: "app"; name: string }
  | { view: "logs"; name: string }
  | { view: "requests"; app: string | null }
  | { view: "request"; id: string }
  | { view: "playground"; app: string | null }
  | { view: "deploy" }
  | { view: "demo" }
  | { view: "unknown" };

export function href(route: Route): string {
  switch (route.view) {
    case "overview":
    case "unknown":
      return "#/";
    case "app":
      return `#/apps/${encodeURIComponent(route.name)}`;
    case "logs":
      return `#/apps/${encodeURIComponent(route.name)}/logs`;
    case "requests":
      return route.app === null ? "#/requests" : `#/apps/${encodeURIComponent(route.app)}/requests`;
    case "request":
      return `#/requests/${encodeURIComponent(route.id)}`;
    case "playground":
      return route.app === null ? "#/playground" : `#/playground/${encodeURIComponent(route.app)}`;
    case "deploy":
    case "demo":
      return `#/${route.view}`;
  }
}

export function parseRoute(hash: string): Route {
  const [first = "", second = "", third = ""] = segments(hash);
  switch (first) {
    case "":
      return { view: "overview" };
    case "apps":
      if (second === "") break;
      if (third === "") return { view: "app", name: second };
      if (third === "logs") return { view: "logs", name: second };
      if (third === "requests") return { view: "requests", app: second };
      break;
    case "requests":
      return second === "" ? { view: "requests", app: null } : { view: "request", id: second };
    case "playground":
      return { view: "playground", app: second || null };
    case "deploy":
    case "demo":
      return { view: first };
  }
  return { view: "unknown" };
}

function segments(hash: string): string[] {
  try {
    return hash
      .replace(/^#?\/?/, "")
      .split("/")
      .map(decodeURIComponent);
  } catch {
    return ["?"];
  }
}

/** Returns the current route. */
export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const onChange = () => setRoute(parseRoute(location.hash));
    window.addEventListener("hashchange", onChange);
    return () => window.removeEventListener("hashchange", onChange);
  }, []);
  return route;
}
