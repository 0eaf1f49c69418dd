import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Session } from "./api/types";

const NOBODY: Session = { role: null, needs_token: true, expires: null, version: null };

export const SessionContext = createContext<Session>(NOBODY);

export function useSession(): Session {
  return useContext(SessionContext);
}

/** Returns whether the session may deploy, scale, restart and delete apps and call models. */
export function useIsAdmin(): boolean {
  return useSession().role === "admin";
}
