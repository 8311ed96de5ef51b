// The process-wide state that the dispatcher demands: one device, its stream, its generator, its memory.
//
// This is the only place with such state. It is made on first use and leaked on purpose, since tensors and threads
// may outlive the end of main(). Everything else in src/torch reaches it through these functions.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKey.h>

#include <exception>

#include "runtime/stream.h"

namespace sinter::torch_device {

// The dispatch key and device type that are served. Registration takes the key as a parameter, so that a second
// device type can be served by the same code.
inline constexpr c10::DispatchKey kKey = c10::DispatchKey::PrivateUse1;
inline constexpr c10::DispatchKey kAutogradKey = c10::DispatchKey::AutogradPrivateUse1;
inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
inline const c10::Device kDevice{kDeviceType, 0};

runtime::Stream& stream();

// Throws the error if there is one.
inline void check(const std::exception_ptr& error) {
  if (error) std::rethrow_exception(error);
}

}  // namespace sinter::torch_device
