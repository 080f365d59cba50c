"""The names of ARM's cores, by the numbers of their implementer and part.

On ARM, /proc/cpuinfo does not name the CPU: it has these two numbers of the register MIDR_EL1, for
every CPU. The names are those of `lscpu`.
"""

_ARM, _BROADCOM, _CAVIUM, _FUJITSU, _HISILICON = 0x41, 0x42, 0x43, 0x46, 0x48
_NVIDIA, _QUALCOMM, _APPLE, _MICROSOFT, _AMPERE = 0x4E, 0x51, 0x61, 0x6D, 0xC0

_CORES = {
    (_ARM, 0xD03): "Cortex-A53",
    (_ARM, 0xD04): "Cortex-A35",
    (_ARM, 0xD05): "Cortex-A55",
    (_ARM, 0xD07): "Cortex-A57",
    (_ARM, 0xD08): "Cortex-A72",
    (_ARM, 0xD09): "Cortex-A73",
    (_ARM, 0xD0A): "Cortex-A75",
    (_ARM, 0xD0B): "Cortex-A76",
    (_ARM, 0xD0C): "Neoverse-N1",
    (_ARM, 0xD0D): "Cortex-A77",
    (_ARM, 0xD0E): "Cortex-A76AE",
    (_ARM, 0xD40): "Neoverse-V1",
    (_ARM, 0xD41): "Cortex-A78",
    (_ARM, 0xD42): "Cortex-A78AE",
    (_ARM, 0xD44): "Cortex-X1",
    (_ARM, 0xD46): "Cortex-A510",
    (_ARM, 0xD47): "Cortex-A710",
    (_ARM, 0xD48): "Cortex-X2",
    (_ARM, 0xD49): "Neoverse-N2",
    (_ARM, 0xD4A): "Neoverse-E1",
    (_ARM, 0xD4B): "Cortex-A78C",
    (_ARM, 0xD4C): "Cortex-X1C",
    (_ARM, 0xD4D): "Cortex-A715",
    (_ARM, 0xD4E): "Cortex-X3",
    (_ARM, 0xD4F): "Neoverse-V2",
    (_ARM, 0xD80): "Cortex-A520",
    (_ARM, 0xD81): "Cortex-A720",
    (_ARM, 0xD82): "Cortex-X4",
    (_ARM, 0xD84): "Neoverse-V3",
    (_ARM, 0xD85): "Cortex-X925",
    (_ARM, 0xD87): "Cortex-A725",
    (_ARM, 0xD8E): "Neoverse-N3",
    (_BROADCOM, 0x516): "ThunderX2",
    (_CAVIUM, 0x0AF): "ThunderX2",
    (_FUJITSU, 0x001): "A64FX",
    (_HISILICON, 0xD01): "Kunpeng-920",
    (_NVIDIA, 0x004): "Carmel",
    (_QUALCOMM, 0x001): "Oryon",
    (_APPLE, 0x022): "Apple M1 Icestorm",
    (_APPLE, 0x023): "Apple M1 Firestorm",
    (_APPLE, 0x024): "Apple M1 Pro Icestorm",
    (_APPLE, 0x025): "Apple M1 Pro Firestorm",
    (_APPLE, 0x028): "Apple M1 Max Icestorm",
    (_APPLE, 0x029): "Apple M1 Max Firestorm",
    (_APPLE, 0x032): "Apple M2 Blizzard",
    (_APPLE, 0x033): "Apple M2 Avalanche",
    (_APPLE, 0x034): "Apple M2 Pro Blizzard",
    (_APPLE, 0x035): "Apple M2 Pro Avalanche",
    (_APPLE, 0x038): "Apple M2 Max Blizzard",
    (_APPLE, 0x039): "Apple M2 Max Avalanche",
    (_MICROSOFT, 0xD49): "Azure Cobalt 100",
    (_AMPERE, 0xAC3): "AmpereOne",
    (_AMPERE, 0xAC4): "AmpereOne A",
}


def core_name(implementer: int, part: int) -> str:
    """What a core is called; an unknown one by its numbers, so that it differs from others."""
    return _CORES.get((implementer, part)) or f"ARM {implementer:#04x}/{part:#05x}"
