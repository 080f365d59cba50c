# Cross-compiling for 64-bit ARM with Debian's g++-aarch64-linux-gnu, against the Python that
# make_root.sh unpacked into INGOT_ARM_ROOT.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES INGOT_ARM_ROOT)
set(CMAKE_CXX_FLAGS_INIT "-idirafter ${INGOT_ARM_ROOT}/usr/include") # where Debian's pyconfig.h looks
