// Presets: settings under names, kept in this browser.

import { loadPresets, savePresets } from "./storage.js";
import { NAMES } from "./sampling.js";

/** The names, in alphabetical order. */
export const presetNames = () =>
  Object.keys(loadPresets()).sort((one, other) => one.localeCompare(other));

/** The settings of a preset, complete: what it does not set is null. */
export function presetSettings(name) {
  const kept = loadPresets()[name] ?? {};
  return Object.fromEntries(NAMES.map((setting) => [setting, kept[setting] ?? null]));
}

/** Store the preset's part of some settings under a name. */
export function savePreset(name, settings) {
  const kept = NAMES.filter((setting) => settings[setting] !== undefined);
  const values = Object.fromEntries(kept.map((setting) => [setting, settings[setting]]));
  savePresets({ ...loadPresets(), [name]: values });
}

export function renamePreset(name, to) {
  const { [name]: kept, ...others } = loadPresets();
  savePresets({ ...others, [to]: kept });
}

export function removePreset(name) {
  const { [name]: _, ...others } = loadPresets();
  savePresets(others);
}

/** The preset whose settings these are, or null. */
export function presetOf(settings) {
  const same = (name) =>
    Object.entries(presetSettings(name)).every(
      ([setting, value]) => JSON.stringify(value) === JSON.stringify(settings[setting] ?? null),
    );
  return presetNames().find(same) ?? null;
}
