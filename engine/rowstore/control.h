// Local socket through which an operator, or the sentinel, talks to a store whose engine hangs.
// One line in, one line out: `ping`, `mode TARGET`, `ticket`, `release LANE [STATUS]`, `info`.
#pragma once
#include <functional>
#include <string>
#include <thread>

#include "common.h"

namespace rs {

class Control {
 public:
  // answer() maps a request line to a reply line. The socket is mode 0600.
  Control(const std::string& path, std::function<std::string(const std::string&)> answer);
  ~Control();

 private:
  void run();
  void serve(int client);

  const std::string path_;
  const std::function<std::string(const std::string&)> answer_;
  int socket_ = -1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace rs
