# Makes the target sinter::torch from the folder of a PyTorch wheel or a libtorch archive.
#
# find_package(Torch) is not used: it looks for CUDA, MKL and Kineto that we do not link and warns of each one missing.
# All that is needed is two libraries and two include folders. Shared by our own build and by the installed package.

set(SINTER_TORCH_VERSION 2.13)

function(sinter_add_torch dir)
  if(TARGET sinter::torch)
    return()
  endif()
  set(header "${dir}/include/torch/headeronly/version.h")
  set(version "unknown")
  if(EXISTS "${header}")
    file(STRINGS "${header}" lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR) [0-9]+")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    string(REPLACE ";" "." version "${numbers}")
  endif()
  if(NOT version STREQUAL SINTER_TORCH_VERSION)
    message(FATAL_ERROR "torch-sinter needs PyTorch ${SINTER_TORCH_VERSION}; ${dir} has ${version}. "
      "Its C++ interface changes with each release, so no other one can work.")
  endif()

  find_package(Threads REQUIRED)
  add_library(sinter::torch INTERFACE IMPORTED GLOBAL)
  set_target_properties(sinter::torch PROPERTIES
    # imported targets' includes are SYSTEM: PyTorch's headers keep their warnings to themselves
    INTERFACE_INCLUDE_DIRECTORIES "${dir}/include;${dir}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${dir}/lib/libtorch_cpu.so;${dir}/lib/libc10.so;Threads::Threads"
    INTERFACE_LINK_DIRECTORIES "${dir}/lib"
    INTERFACE_COMPILE_FEATURES cxx_std_20)
endfunction()
