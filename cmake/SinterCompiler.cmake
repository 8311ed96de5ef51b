# The flags that all our targets share, as the interface target sinter_options.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Line tables are enough for a backtrace and a profile, and build twice as fast as full debug information.
# The wheel is stripped when it is installed.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(SINTER_CCACHE ccache)
mark_as_advanced(SINTER_CCACHE)
if(SINTER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${SINTER_CCACHE}")
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "torch-sinter needs g++ 11 or newer (C++20); this is ${CMAKE_CXX_COMPILER_VERSION}.")
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND SINTER_BUILD_TORCH)
  # PyTorch's wheel runs on GCC's OpenMP; clang would bring a second runtime, and with it a second thread pool.
  message(WARNING "libtorch_sinter.so built by clang brings a second OpenMP runtime: use it for checks, not for speed.")
endif()

add_library(sinter_options INTERFACE)
target_include_directories(sinter_options INTERFACE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
target_compile_definitions(sinter_options INTERFACE SINTER_VERSION="${PROJECT_VERSION}")
target_compile_options(sinter_options INTERFACE -Wall -Wextra -ffunction-sections -fdata-sections)
if(SINTER_WERROR)
  target_compile_options(sinter_options INTERFACE -Werror)
endif()
if(SINTER_SANITIZE)
  target_compile_options(sinter_options INTERFACE
    -fsanitize=${SINTER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(sinter_options INTERFACE -fsanitize=${SINTER_SANITIZE})
endif()
