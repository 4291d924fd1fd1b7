#include "store_load.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dtrun/base/unique_fd.h"

namespace dtrun::bench {
namespace {

using Clock = std::chrono::steady_clock;
using base::UniqueFd;

constexpr int kPatienceMs = 120'000;
constexpr int kConnections = 100;

[[noreturn]] void give_up(const StoreContender& server, const std::string& what) {
  fmt::print(stderr, "store_bench: {}: {} ({})\n", server.name(), what, ::strerror(errno));
  std::exit(1);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return seconds_of(time);
}

template <typename Number>
std::string number(Number value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string text(const std::string& bytes) {
  return number<std::uint64_t>(bytes.size()) + bytes;
}

const std::string kHello("\x00\xce\xf7\x85\x3c", 5);
const std::string kPing("\x0dping", 5);

std::string set(const std::string& key, const std::string& value) {
  return "\x01" + text(key) + text(value);
}
std::string wait(const std::string& key) {
  return "\x06" + number<std::uint64_t>(1) + text(key);
}
std::string get(const std::string& key) {
  return "\x03" + text(key);
}

// What one connection asks again and again, and how many bytes it hears each time.
struct Question {
  std::string bytes;
  std::size_t answer = 0;
};
const Question kGreeting = {kHello + kPing, 4};

class Client {
 public:
  explicit Client(const StoreContender& server) : server_(server) {
    fd_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // Ended by a reset: tens of thousands of ports in TIME_WAIT would end the measurement.
    const linger now{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

  // Tells an echo server that every question will be like `question`.
  void connect(const Question& question) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      give_up(server_, "cannot connect");
    if (server_.is_echo())
      send(number(static_cast<std::uint32_t>(question.bytes.size())) +
           number(static_cast<std::uint32_t>(question.answer)));
  }

  int fd() const { return fd_.get(); }

  void send(const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t size = ::send(fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (size < 0) give_up(server_, "cannot send");
      sent += static_cast<std::size_t>(size);
    }
  }

  // Waits for the rest of the answer; its last bytes are returned.
  std::string receive(std::size_t size) {
    std::string bytes(std::min<std::size_t>(size, 1 << 20), '\0');
    std::size_t last = 0;
    while (size > 0) {
      pollfd readable{fd(), POLLIN, 0};
      if (::poll(&readable, 1, kPatienceMs) != 1) give_up(server_, "no answer");
      last = receive_some(bytes.data(), std::min(size, bytes.size()));
      size -= last;
    }
    bytes.resize(last);
    return bytes;
  }

  std::size_t receive_some(char* bytes, std::size_t most) {
    const ssize_t size = ::recv(fd(), bytes, most, 0);
    if (size <= 0) give_up(server_, "the connection ended");
    return static_cast<std::size_t>(size);
  }

  // The kernel's time of each arrival, for arrival().
  void stamp_arrivals() {
    const int on = 1;
    ::setsockopt(fd(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  }

  // From now on, until it has not asked for a while.
  void acknowledge_when_asking() {
    for (const int at_once : {1, 0})  // 1: of what has come before, now
      ::setsockopt(fd(), IPPROTO_TCP, TCP_QUICKACK, &at_once, sizeof at_once);
  }

  // Waits for an answer of one byte; when it came to the socket, in seconds of CLOCK_REALTIME.
  double arrival() {
    char byte = 0, control[CMSG_SPACE(sizeof(timespec))];
    iovec place{&byte, 1};
    msghdr message{};
    message.msg_iov = &place;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    pollfd readable{fd(), POLLIN, 0};
    if (::poll(&readable, 1, kPatienceMs) != 1 || ::recvmsg(fd(), &message, 0) != 1)
      give_up(server_, "no answer");
    const cmsghdr* head = CMSG_FIRSTHDR(&message);
    if (head == nullptr || head->cmsg_type != SCM_TIMESTAMPNS) give_up(server_, "no time stamp");
    timespec time{};
    std::memcpy(&time, CMSG_DATA(head), sizeof time);
    return seconds_of(time);
  }

  void greet() {
    if (server_.is_echo()) return;
    send(kGreeting.bytes);
    if (receive(4) != "ping") give_up(server_, "PING was not answered with its number");
  }

  std::size_t owed = 0;  // of the answer

 private:
  const StoreContender& server_;
  UniqueFd fd_;
};

using Clients = std::vector<std::unique_ptr<Client>>;

Clients greeted_clients(const StoreContender& server, int count, const Question& question) {
  Clients clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<Client>(server));
    clients.back()->connect(question);
    clients.back()->greet();
  }
  return clients;
}

class Crowd {
 public:
  explicit Crowd(const StoreContender& server)
      : server_(server), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

  void add(Client& client) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &client;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, client.fd(), &event);
  }

  // Calls `answered` for each client whose answer has become whole, until it returns false.
  template <typename Answered>
  void listen(Answered answered) {
    epoll_event events[256];
    while (true) {
      const int count = ::epoll_wait(epoll_.get(), events, 256, kPatienceMs);
      if (count <= 0) give_up(server_, "no answers");
      for (int i = 0; i < count; ++i) {
        Client& client = *static_cast<Client*>(events[i].data.ptr);
        client.owed -= client.receive_some(buffer_, sizeof buffer_);
        if (client.owed == 0 && !answered(client)) return;
      }
    }
  }

 private:
  const StoreContender& server_;
  UniqueFd epoll_;
  char buffer_[64 << 10];
};

}  // namespace

double operations_per_second(const StoreContender& server, int in_flight, double seconds) {
  const auto question_of = [&](int i) {
    const std::string key = fmt::format("/key-{:03}", i);
    Question question;
    for (int k = 0; k < in_flight; ++k)
      question.bytes += set(key, "12345678") + wait(key) + get(key);
    question.answer = static_cast<std::size_t>(in_flight) * (1 + 8 + 8);
    return question;
  };
  Clients clients = greeted_clients(server, kConnections, question_of(0));
  std::vector<Question> questions;
  for (int i = 0; i < kConnections; ++i) questions.push_back(question_of(i));
  clients[0]->send(questions[0].bytes);
  if (!clients[0]->receive(questions[0].answer).ends_with("12345678") && !server.is_echo())
    give_up(server, "GET was not answered with what was SET");

  Crowd crowd(server);
  std::vector<std::size_t> place;
  const auto ask = [&](Client& client, int i) {
    client.owed = questions[i].answer;
    client.send(questions[i].bytes);
  };
  const auto begin = Clock::now();
  for (int i = 0; i < kConnections; ++i) {
    crowd.add(*clients[i]);
    ask(*clients[i], i);
  }
  long answers = 0;
  crowd.listen([&](Client& client) {
    ++answers;
    if (answers % 64 == 0 && seconds_since(begin) >= seconds) return false;
    // All questions are equally long: which key a connection uses does not matter.
    ask(client, static_cast<int>(answers % kConnections));
    return true;
  });
  const double elapsed = seconds_since(begin);
  for (const auto& client : clients) client->receive(client->owed);
  return static_cast<double>(answers) * in_flight * 3 / elapsed;
}

double round_trip_us(const StoreContender& server, int connections, int trips) {
  const Question ping = {kPing, 4};
  Clients clients = greeted_clients(server, connections, ping);
  std::mt19937 random(1);
  std::vector<double> times;
  for (int i = 0; i < trips; ++i) {
    Client& client = *clients[random() % clients.size()];
    const auto begin = Clock::now();
    client.send(kPing);
    client.receive(4);
    times.push_back(seconds_since(begin) * 1e6);
  }
  return median(times);
}

double connect_seconds(const StoreContender& server, int count) {
  Crowd crowd(server);
  Clients clients;
  for (int i = 0; i < count; ++i) clients.push_back(std::make_unique<Client>(server));
  const auto begin = Clock::now();
  for (const auto& client : clients) {
    client->connect(kGreeting);
    client->send(kGreeting.bytes);
    client->owed = kGreeting.answer;
  }
  for (const auto& client : clients) crowd.add(*client);
  int answers = 0;
  crowd.listen([&](Client&) { return ++answers < count; });
  return seconds_since(begin);
}

double release_ms(const StoreContender& server, int count, Acknowledge acknowledge) {
  static int round = 0;
  const std::string key = fmt::format("/released-{}", ++round);
  Clients clients = greeted_clients(server, count, {kPing, 4});
  for (const auto& client : clients) {
    client->stamp_arrivals();
    // The PING's answer says that the WAIT has been heard.
    client->send(server.is_echo() ? kPing : wait(key) + kPing);
    client->receive(4);
    if (acknowledge == Acknowledge::kWhenTheyAsk) client->acknowledge_when_asking();
  }
  const std::string question = set(key, "1");
  Client setter(server);
  setter.connect({question, kToAllOthers});
  setter.greet();
  const double begin = seconds_of(CLOCK_REALTIME);
  setter.send(question);
  double last = 0;
  // From the last to the first, so that this thread sleeps until most of them have come.
  for (auto client = clients.rbegin(); client != clients.rend(); ++client)
    last = std::max(last, (*client)->arrival());
  return (last - begin) * 1e3;
}

double multi_get_ms(const StoreContender& server, int count, int times) {
  std::string sets;
  Question question = {"\x0a" + number<std::uint64_t>(count), static_cast<std::size_t>(count) * 16};
  for (int i = 0; i < count; ++i) {
    const std::string key = fmt::format("/multi-{:06}", i);
    sets += set(key, "12345678");
    question.bytes += text(key);
  }
  Client client(server);
  client.connect(question);
  client.greet();
  if (!server.is_echo()) {
    client.send(sets + kPing);
    client.receive(4);
  }
  std::vector<double> elapsed;
  for (int i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    client.send(question.bytes);
    client.receive(question.answer);
    elapsed.push_back(seconds_since(begin) * 1e3);
  }
  return median(elapsed);
}

double bytes_per_idle_connection(const StoreContender& server) {
  constexpr int kFirst = 1000, kMore = 6000;
  const Clients first = greeted_clients(server, kFirst, {});
  const double before = server.resident_bytes();
  const Clients more = greeted_clients(server, kMore, {});
  return (server.resident_bytes() - before) / kMore;
}

}  // namespace dtrun::bench
