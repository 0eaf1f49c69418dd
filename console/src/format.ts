/** Numbers, sizes and times for people. Null is unknown. */

import type { Percentiles } from "./api/types";

const UNKNOWN = "–";

/** Formats by their numbers of digits. Creating one takes longer than formatting a row of figures. */
const FORMATS = [0, 1, 2].map((digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits }));

export function number(value: number | null | undefined, digits: 0 | 1 | 2 = 1): string {
  if (value === null || value === undefined) return UNKNOWN;
  return (FORMATS[Math.abs(value) >= 100 ? 0 : digits] as Intl.NumberFormat).format(value);
}

export function rate(value: number | null | undefined): string {
  return value === null || value === undefined ? UNKNOWN : `${number(value, 2)}/s`;
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  return value < 1 ? `${number(value * 1000, value < 0.01 ? 1 : 0)} ms` : `${number(value, 2)} s`;
}

export function share(value: number | null | undefined): string {
  return value === null || value === undefined ? UNKNOWN : `${number(value * 100)} %`;
}

export function dollars(value: number | null | undefined): string {
  return value === null || value === undefined ? UNKNOWN : `$${number(value, 2)}/h`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let scaled = value;
  let unit = 0;
  while (scaled >= 1000 && unit < units.length - 1) {
    scaled /= 1000;
    unit += 1;
  }
  return `${number(scaled)} ${units[unit]}`;
}

/** The time of day, with the date if it is not that of today. */
export function clock(time: string | number | null): string {
  if (time === null) return UNKNOWN;
  const date = new Date(typeof time === "number" ? time * 1000 : time);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? date.toLocaleTimeString("en", { hourCycle: "h23" }) : dateAndTime(date);
}

export function dateAndTime(date: Date): string {
  return date.toLocaleString("en", { hourCycle: "h23", dateStyle: "medium", timeStyle: "medium" });
}

export function plural(count: number, noun: string): string {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** The median and the 99th percentile of durations. */
export function medianAndTail(percentiles: Percentiles | null): string {
  return percentiles === null ? UNKNOWN : `${seconds(percentiles.p50)} / ${seconds(percentiles.p99)}`;
}
