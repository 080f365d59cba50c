// Numbers with units, for people.

/** A number in millions or billions: 135M, 1.2B; 80 MB, 1.2 GB. */
export function amount(value, billions, millions = "M") {
  const [by, unit] = value >= 1e9 ? [1e9, billions] : [1e6, millions];
  const digits = value / by < 10 ? 1 : 0;
  return (value / by).toFixed(digits) + (unit.length > 1 ? ` ${unit}` : unit);
}
