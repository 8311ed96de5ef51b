# What goes into the wheel beside the Python sources, and the same tree for a program that builds against a checkout.
#
#   torch_sinter/lib/libtorch_sinter.so, libsinter_native.so, libsinter_autoload.so
#   torch_sinter/lib/cmake/sinter/       find_package(sinter), with CMAKE_PREFIX_PATH at torch_sinter/
#   torch_sinter/include/sinter/
include(CMakePackageConfigHelpers)

set(package_dir lib/cmake/sinter)

# Writes the package files into `to`; `torch_hint` is where PyTorch is to be found when it lies elsewhere than next door.
function(sinter_write_package to torch_hint)
  set(SINTER_TORCH_HINT "${torch_hint}")
  configure_package_config_file(cmake/sinter-config.cmake.in "${to}/sinter-config.cmake"
    INSTALL_DESTINATION "${package_dir}")
  write_basic_package_version_file("${to}/sinter-config-version.cmake"
    VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMinorVersion)
  configure_file(cmake/sinter-torch.cmake "${to}/sinter-torch.cmake" COPYONLY)
endfunction()

# `make setup` links python/torch_sinter/lib to this build's lib folder.
sinter_write_package("${CMAKE_BINARY_DIR}/${package_dir}" "${torch_dir}")
sinter_write_package("${CMAKE_BINARY_DIR}/install/${package_dir}" "")

install(TARGETS torch_sinter sinter_native sinter_autoload LIBRARY DESTINATION torch_sinter/lib)
install(DIRECTORY include/sinter DESTINATION torch_sinter/include)
install(DIRECTORY "${CMAKE_BINARY_DIR}/install/${package_dir}/" DESTINATION "torch_sinter/${package_dir}")
