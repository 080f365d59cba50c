# Read by CMake inside llama.cpp's own project: leave out what only its command-line tools use,
# which is half of what would be compiled. (The Python package asks for it in a way that no flag
# on the command line can take back.)
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "llama: build common utils library" FORCE)
