# Where the Python packages that we build with live. Nothing here links to Python.

if(NOT SINTER_PYTHON AND DEFINED Python3_EXECUTABLE) # given by scikit-build-core
  set(SINTER_PYTHON "${Python3_EXECUTABLE}")
elseif(NOT SINTER_PYTHON AND DEFINED Python_EXECUTABLE)
  set(SINTER_PYTHON "${Python_EXECUTABLE}")
endif()
if(NOT SINTER_PYTHON)
  find_program(SINTER_PYTHON python3 NO_CACHE)
endif()

# Sets `out` to what a line of Python prints, or to "" where it fails.
function(sinter_python out code)
  execute_process(COMMAND "${SINTER_PYTHON}" -c "${code}"
    OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(answer "")
  endif()
  set(${out} "${answer}" PARENT_SCOPE)
endfunction()

# Sets `out` to the folder of the installed torch package. It is not imported: that would take seconds.
function(sinter_find_torch out)
  if(SINTER_TORCH_DIR)
    set(dir "${SINTER_TORCH_DIR}")
  else()
    sinter_python(dir "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])")
  endif()
  if(NOT EXISTS "${dir}/lib/libtorch_cpu.so")
    message(FATAL_ERROR "No PyTorch found through ${SINTER_PYTHON}. Run `make setup`, or give -DSINTER_PYTHON=<a "
      "Python that has torch> or -DSINTER_TORCH_DIR=<a libtorch folder>.")
  endif()
  set(${out} "${dir}" PARENT_SCOPE)
endfunction()
