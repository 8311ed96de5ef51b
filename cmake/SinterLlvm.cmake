# LLVM as static archives, from the PyPI package mlc-llvm-static of the Python that we build with.

# Makes the target sinter::llvm: headers, and what native code generation needs.
function(sinter_find_llvm)
  if(NOT SINTER_LLVM_DIR)
    sinter_python(SINTER_LLVM_DIR
      "import importlib.util as u; print(u.find_spec('mlc_llvm_static').submodule_search_locations[0] + '/static')")
  endif()
  if(NOT EXISTS "${SINTER_LLVM_DIR}/lib/cmake/llvm/LLVMConfig.cmake")
    message(FATAL_ERROR "No LLVM found through ${SINTER_PYTHON}. Run `make setup`, or install mlc-llvm-static "
      "(requirements/build.txt) there, or give -DSINTER_LLVM_DIR=<the prefix of an LLVM 23 build>.")
  endif()
  list(PREPEND CMAKE_PREFIX_PATH "${SINTER_LLVM_DIR}") # its zlib and zstd lie there too
  find_package(LLVM REQUIRED CONFIG PATHS "${SINTER_LLVM_DIR}" NO_DEFAULT_PATH)
  llvm_map_components_to_libnames(libraries core orcjit passes native nativecodegen)
  add_library(sinter::llvm INTERFACE IMPORTED GLOBAL)
  set_target_properties(sinter::llvm PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${LLVM_INCLUDE_DIRS}"
    INTERFACE_COMPILE_OPTIONS "-fno-rtti"
    INTERFACE_LINK_LIBRARIES "${libraries}"
    # Another LLVM in the process (Triton's, numba's) must not meet this one.
    INTERFACE_LINK_OPTIONS "LINKER:--exclude-libs,ALL;LINKER:--gc-sections;LINKER:-z,defs")
endfunction()
