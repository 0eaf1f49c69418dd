import type { ComponentChildren, Ref } from "preact";

interface ScrollProps {
  label: string;
  class?: string;
  frame?: Ref<HTMLElement>;
  children: ComponentChildren;
}

/** A region that scrolls if it is too wide or too high. The keyboard reaches and scrolls it. */
export function Scroll({ label, class: name = "", frame, children }: ScrollProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: browsers do not scroll it by the keyboard otherwise.
    <section class={`scroll ${name}`} aria-label={label} ref={frame} tabIndex={0}>
      {children}
    </section>
  );
}
